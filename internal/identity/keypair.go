// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// keyPair is a certificate and its key, read again when the certificate's file
// changed.
type keyPair struct {
	files Files

	mu          sync.Mutex
	certificate *tls.Certificate
	stamp       stamp
}

// stamp tells one version of a file from the next.
type stamp struct {
	modified time.Time
	size     int64
}

// current returns the pair as the files have it now. While new files cannot be
// read, or do not fit each other yet, it returns the pair read before.
func (k *keyPair) current() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := stampOf(k.files.Certificate)
	if k.certificate != nil && (now == stamp{} || now == k.stamp) {
		return k.certificate, nil
	}
	read, err := readPair(k.files)
	if err != nil {
		if k.certificate != nil {
			return k.certificate, nil
		}
		return nil, err
	}
	k.certificate, k.stamp = read, now
	return read, nil
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// readPair reads both files and checks that they fit.
func readPair(f Files) (*tls.Certificate, error) {
	certificate, err := os.ReadFile(f.Certificate)
	if err != nil {
		return nil, fmt.Errorf("reading certificate %s: %w", f.Certificate, reason(err))
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading key %s: %w", f.Key, reason(err))
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading certificate %s with key %s: %w", f.Certificate, f.Key, err)
	}
	return &pair, nil
}
