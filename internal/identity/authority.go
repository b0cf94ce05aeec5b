// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// DefaultValidity of an issued certificate.
	DefaultValidity = 365 * 24 * time.Hour

	authorityValidity = 10 * 365 * 24 * time.Hour
	// clockSkew: certificates are valid from a little before they were made,
	// for hosts whose clock is behind.
	clockSkew = 5 * time.Minute
)

// Files are one party's three PEM files.
type Files struct {
	CA, Certificate, Key string
}

// FilesIn are the files that Init and Issue make in dir for i: ca.crt and
// coordinator.crt or ROLE-NAME.crt, with its .key.
func FilesIn(dir string, i Identity) Files {
	base := i.Role
	if i.Name != "" {
		base += "-" + i.Name
	}
	return Files{
		CA:          filepath.Join(dir, "ca.crt"),
		Certificate: filepath.Join(dir, base+".crt"),
		Key:         filepath.Join(dir, base+".key"),
	}
}

// Init makes a CA in dir: ca.crt and ca.key, each 0600, valid for ten years.
// dir is made 0700 when it is missing. Existing files are never overwritten:
// the error is then fs.ErrExist.
func Init(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the CA's key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "vipmove CA " + now.UTC().Format(time.DateOnly)},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("making the CA's certificate: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the CA's folder: %w", err)
	}
	return writePair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), der, key)
}

// Issue makes a key and a certificate for i, signed by the CA in dir, and
// writes both there, 0600, overwriting nothing (the error is then
// fs.ErrExist). A coordinator's certificate always has the DNS SAN ServerName;
// dnsNames and ips are added to it. validity 0 is DefaultValidity; no
// certificate outlives its CA.
func Issue(dir string, i Identity, dnsNames []string, ips []netip.Addr, validity time.Duration) (Files, error) {
	if err := i.Validate(); err != nil {
		return Files{}, fmt.Errorf("issuing a certificate: %w", err)
	}
	files := FilesIn(dir, i)
	ca, caKey, err := readAuthority(dir)
	if err != nil {
		return Files{}, fmt.Errorf("issuing a certificate for %s: %w", i, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Files{}, fmt.Errorf("making a key for %s: %w", i, err)
	}
	template := leaf(i, dnsNames, ips, validity, ca)
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return Files{}, fmt.Errorf("signing a certificate for %s: %w", i, err)
	}
	if err := writePair(files.Certificate, files.Key, der, key); err != nil {
		return Files{}, err
	}
	return files, nil
}

// leaf is the certificate of i before it is signed. Only a coordinator's can
// serve, only the others' can dial.
func leaf(i Identity, dnsNames []string, ips []netip.Addr, validity time.Duration, ca *x509.Certificate) *x509.Certificate {
	if validity <= 0 {
		validity = DefaultValidity
	}
	now := time.Now()
	c := &x509.Certificate{
		Subject:               pkix.Name{CommonName: i.String()},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{i.URI()},
		DNSNames:              dnsNames,
	}
	if c.NotAfter.After(ca.NotAfter) {
		c.NotAfter = ca.NotAfter
	}
	if i.Role == RoleCoordinator {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if !slices.Contains(dnsNames, ServerName) {
			c.DNSNames = append([]string{ServerName}, dnsNames...)
		}
	}
	for _, ip := range ips {
		c.IPAddresses = append(c.IPAddresses, net.IP(ip.AsSlice()))
	}
	return c
}

// readAuthority reads the CA that Init made in dir.
func readAuthority(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certificatePath, keyPath := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	ca, err := readCertificate(certificatePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: make a CA first (vipmove pki init)", err)
	}
	if err != nil {
		return nil, nil, err
	}
	key, err := readKey(keyPath)
	switch {
	case err != nil:
		return nil, nil, err
	case !key.PublicKey.Equal(ca.PublicKey):
		return nil, nil, fmt.Errorf("%s is not the key of %s", keyPath, certificatePath)
	case !ca.IsCA:
		return nil, nil, fmt.Errorf("%s is no CA's certificate", certificatePath)
	case time.Now().After(ca.NotAfter):
		return nil, nil, fmt.Errorf("%s expired at %s", certificatePath, ca.NotAfter.UTC().Format(time.RFC3339))
	}
	return ca, key, nil
}
