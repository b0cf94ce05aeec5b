// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY" // PKCS #8
)

// writePair writes a certificate and its key where neither file exists yet.
func writePair(certificatePath, keyPath string, der []byte, key *ecdsa.PrivateKey) error {
	if _, err := os.Lstat(certificatePath); err == nil {
		return fmt.Errorf("writing %s: %w, and is not overwritten", certificatePath, fs.ErrExist)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key for %s: %w", keyPath, err)
	}
	if err := writeNew(keyPath, keyBlock, secret); err != nil {
		return err
	}
	if err := writeNew(certificatePath, certificateBlock, der); err != nil {
		return errors.Join(err, os.Remove(keyPath)) // a key without certificate would be in the way next time
	}
	return nil
}

// writeNew writes one PEM block to a new file, 0600, and syncs it.
func writeNew(path, block string, der []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("writing %s: %w, and is not overwritten", path, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, reason(err))
	}
	err = errors.Join(pem.Encode(file, &pem.Block{Type: block, Bytes: der}), file.Sync(), file.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// readBlock reads the first PEM block of a type from a file.
func readBlock(path, block string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, reason(err))
	}
	for found, rest := pem.Decode(text); found != nil; found, rest = pem.Decode(rest) {
		if found.Type == block {
			return found.Bytes, nil
		}
	}
	return nil, fmt.Errorf("reading %s: it has no PEM block %q", path, block)
}

func readCertificate(path string) (*x509.Certificate, error) {
	der, err := readBlock(path, certificateBlock)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return c, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := readBlock(path, keyBlock)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading %s: it holds a %T, want an ECDSA key", path, key)
	}
	return private, nil
}

// reason is err without the path, which the caller says.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
