// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/vipmove/vipmove/coordinator/handover"
)

var (
	bucketMeta  = []byte("meta")  // id, term
	bucketRuns  = []byte("runs")  // run id -> bucket of seq -> record
	bucketNodes = []byte("nodes") // name -> role
	keyID       = []byte("id")
	keyTerm     = []byte("term")
)

// Bolt is a journal in one bbolt file. Every write is synced before it returns.
type Bolt struct {
	db   *bolt.DB
	id   string
	term atomic.Uint64
}

// Open opens or makes the journal at path (0600). A second process gets ErrInUse after a second.
func Open(path string) (*Bolt, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the journal's folder: %w", err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("opening journal %s: %w (two coordinators on one journal would both act; stop the other one first)", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("opening journal %s: %w", path, err)
	}
	j := &Bolt{db: db}
	if err := db.Update(j.init); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("preparing journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Bolt) init(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketRuns, bucketNodes} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if meta.Get(keyID) == nil {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		if err := meta.Put(keyID, []byte(hex.EncodeToString(b[:]))); err != nil {
			return err
		}
	}
	j.id = string(meta.Get(keyID))
	return nil
}

// ID implements Journal.
func (j *Bolt) ID() string { return j.id }

// Term implements Journal.
func (j *Bolt) Term() uint64 { return j.term.Load() }

// RaiseTerm implements Journal.
func (j *Bolt) RaiseTerm() (uint64, error) {
	var term uint64
	err := j.db.Update(func(tx *bolt.Tx) error {
		term = stored(tx) + 1
		return tx.Bucket(bucketMeta).Put(keyTerm, binary.BigEndian.AppendUint64(nil, term))
	})
	if err != nil {
		return 0, fmt.Errorf("raising the journal's term: %w", err)
	}
	j.term.Store(term)
	return term, nil
}

func stored(tx *bolt.Tx) uint64 {
	if v := tx.Bucket(bucketMeta).Get(keyTerm); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// Append implements Journal.
func (j *Bolt) Append(run string, seq uint64, e handover.Event) error {
	raw, err := encode(e)
	if err != nil {
		return err
	}
	err = j.db.Update(func(tx *bolt.Tx) error {
		if now := stored(tx); now != j.term.Load() {
			return fmt.Errorf("term %d is in the journal, this process leads with %d: %w", now, j.term.Load(), ErrSuperseded)
		}
		b, err := tx.Bucket(bucketRuns).CreateBucketIfNotExists([]byte(run))
		if err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, seq)
		if old := b.Get(key); old != nil {
			if bytes.Equal(old, raw) {
				return nil
			}
			return ErrConflict
		}
		return b.Put(key, raw)
	})
	if err != nil {
		return fmt.Errorf("writing event %d (%s) of run %s to the journal: %w", seq, e.Kind, run, err)
	}
	return nil
}

// Runs implements Journal. Run ids sort by their start time.
func (j *Bolt) Runs() ([]string, error) {
	var out []string
	err := j.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketRuns).ForEachBucket(func(k []byte) error {
			out = append(out, string(k))
			return nil
		})
	})
	return out, err
}

// Load implements Journal.
func (j *Bolt) Load(run string) ([]handover.Event, error) {
	var out []handover.Event
	err := j.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketRuns).Bucket([]byte(run))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			e, err := decode(v)
			if err != nil {
				return fmt.Errorf("reading event %d of run %s: %w", binary.BigEndian.Uint64(k), run, err)
			}
			out = append(out, e)
			return nil
		})
	})
	return out, err
}

// RememberNode implements Journal.
func (j *Bolt) RememberNode(name, role string) error {
	err := j.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketNodes).Put([]byte(name), []byte(role)) })
	if err != nil {
		return fmt.Errorf("remembering node %s in the journal: %w", name, err)
	}
	return nil
}

// Nodes implements Journal.
func (j *Bolt) Nodes() (map[string]string, error) {
	out := map[string]string{}
	err := j.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketNodes).ForEach(func(k, v []byte) error {
			out[string(k)] = string(v)
			return nil
		})
	})
	return out, err
}

// Close implements Journal.
func (j *Bolt) Close() error { return j.db.Close() }
