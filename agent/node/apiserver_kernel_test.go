// SPDX-License-Identifier: Apache-2.0

//go:build kernel && kubeproxy

package node

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/vipmove/vipmove/lab/namespace"
)

// object is a Kubernetes object as JSON.
type object = map[string]any

// resource is what one list path serves.
type resource struct {
	version, kind string
	items         []object
}

// cluster is the cluster as kube-proxy on n1 sees it: the Service of the story
// and cluster DNS, each with one endpoint.
func cluster() map[string]resource {
	service := func(name, clusterIP, protocol string, port int, more object) object {
		spec := object{"type": "ClusterIP", "clusterIP": clusterIP, "clusterIPs": []string{clusterIP}, "ipFamilies": []string{"IPv4"},
			"ports": []object{{"name": "p", "protocol": protocol, "port": port, "targetPort": port}}}
		o := object{"metadata": meta(name), "spec": spec}
		for k, v := range more {
			if k == "status" {
				o[k] = v
			} else {
				spec[k] = v
			}
		}
		return o
	}
	slice := func(name, protocol string, port int, ip string) object {
		m := meta(name + "-1")
		m["labels"] = object{"kubernetes.io/service-name": name}
		return object{"metadata": m, "addressType": "IPv4",
			"endpoints": []object{{"addresses": []string{ip}, "conditions": object{"ready": true, "serving": true, "terminating": false}}},
			"ports":     []object{{"name": "p", "protocol": protocol, "port": port}}}
	}
	return map[string]resource{
		"/api/v1/nodes": {"v1", "Node", []object{{
			"metadata": object{"name": testNode, "uid": "u1", "resourceVersion": "1"}, "spec": object{"podCIDR": "198.18.1.0/24", "podCIDRs": []string{"198.18.1.0/24"}},
			"status": object{"addresses": []object{{"type": "InternalIP", "address": "192.0.2.11"}, {"type": "Hostname", "address": testNode}}},
		}}},
		"/api/v1/services": {"v1", "Service", []object{
			service("gw", "10.96.0.20", "TCP", 80, object{"type": "LoadBalancer", "status": object{"loadBalancer": object{"ingress": []object{{"ip": vip.String(), "ipMode": "VIP"}}}}}),
			service("kube-dns", "10.96.0.10", "UDP", 53, nil),
		}},
		"/apis/discovery.k8s.io/v1/endpointslices": {"discovery.k8s.io/v1", "EndpointSlice", []object{
			slice("gw", "TCP", 80, "198.18.1.7"), slice("kube-dns", "UDP", 53, "198.18.1.8"),
		}},
		"/apis/networking.k8s.io/v1/servicecidrs": {"networking.k8s.io/v1", "ServiceCIDR", nil},
	}
}

func meta(name string) object {
	return object{"name": name, "namespace": "default", "uid": "uid-" + name, "resourceVersion": "1"}
}

// serveAPI is as much of an API server as kube-proxy asks for: lists, watches
// that begin with what is there and then stay silent, and events to forget.
// It listens on n's loopback, and returns its URL.
func serveAPI(t *testing.T, n *namespace.Namespace) string {
	t.Helper()
	var l net.Listener
	if err := n.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	all := cluster()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		res, ok := all[r.URL.Path]
		switch {
		case r.Method == http.MethodPost: // an event
			w.WriteHeader(http.StatusCreated)
			_, _ = io.Copy(w, r.Body)
		case ok && r.URL.Query().Get("watch") != "":
			res.watch(w, r)
		case ok:
			items := []object{}
			_ = json.NewEncoder(w).Encode(object{"kind": res.kind + "List", "apiVersion": res.version, "metadata": object{"resourceVersion": "1"}, "items": append(items, res.items...)})
		case r.URL.Path == "/api/v1/nodes/"+testNode:
			_ = json.NewEncoder(w).Encode(all["/api/v1/nodes"].whole(0))
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "http://" + l.Addr().String()
}

// whole is item i with its kind and version, which lists leave out.
func (res resource) whole(i int) object {
	o := object{"kind": res.kind, "apiVersion": res.version}
	for k, v := range res.items[i] {
		o[k] = v
	}
	return o
}

// watch streams what is there, where that was asked for, and no change ever.
func (res resource) watch(w http.ResponseWriter, r *http.Request) {
	enc := json.NewEncoder(w)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for i := range res.items {
			_ = enc.Encode(object{"type": "ADDED", "object": res.whole(i)})
		}
		_ = enc.Encode(object{"type": "BOOKMARK", "object": object{"kind": res.kind, "apiVersion": res.version, "metadata": object{
			"resourceVersion": "1", "annotations": object{"k8s.io/initial-events-end": "true"},
		}}})
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}
