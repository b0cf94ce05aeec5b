// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kubeProxyTimeout bounds each of the two questions: both stay on this node.
const kubeProxyTimeout = time.Second

// kubeProxyProbe asks kube-proxy's own ports (ports.ProxyStatusPort 10249 and
// ports.ProxyHealthzPort 10256 of kubernetes/pkg/cluster/ports). Only the
// first proves anything: Cilium serves the second too.
type kubeProxyProbe struct {
	mode, health *url.URL
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

func (p kubeProxyProbe) ask(ctx context.Context) KubeProxy {
	status, body, err := p.get(ctx, p.mode)
	switch {
	case err == nil && status == http.StatusOK && isProxyMode(body):
		return KubeProxy{State: KubeProxyRunning, Mode: body, Detail: p.mode.Host + " answers " + body}
	case err == nil:
		return KubeProxy{State: KubeProxyUnknownManager, Detail: fmt.Sprintf("%s answers, but not as kube-proxy does: status %d", p.mode.Host, status)}
	case !errors.Is(err, unix.ECONNREFUSED):
		return KubeProxy{State: KubeProxyUnknown, Detail: fmt.Sprintf("asking %s: %v", p.mode.Host, err)}
	}
	conn, err := p.connect(ctx, p.health)
	switch {
	case err == nil:
		conn.Close()
		return KubeProxy{State: KubeProxyUnknownManager, Detail: p.health.Host + " answers alone: a manager that is not known to be kube-proxy"}
	case errors.Is(err, unix.ECONNREFUSED):
		return KubeProxy{State: KubeProxyAbsent, Detail: p.mode.Host + " and " + p.health.Host + " refuse connections"}
	}
	return KubeProxy{State: KubeProxyUnknown, Detail: fmt.Sprintf("asking %s: %v", p.health.Host, err)}
}

// isProxyMode knows the modes of kube-proxy (KubeProxyConfiguration.mode)
// without listing them: one lower-case word.
func isProxyMode(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

func (p kubeProxyProbe) connect(ctx context.Context, u *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeProxyTimeout)
	defer cancel()
	return p.dial(ctx, "tcp", u.Host)
}

// get does one request on the calling goroutine. http.Transport would dial on
// one of its own, and so perhaps on a thread in another network namespace.
func (p kubeProxyProbe) get(ctx context.Context, u *url.URL) (status int, body string, err error) {
	conn, err := p.connect(ctx, u)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(kubeProxyTimeout)); err != nil {
		return 0, "", err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, 16<<10)), req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 64))
	return res.StatusCode, strings.TrimSpace(string(b)), err
}
