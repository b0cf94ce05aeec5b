// SPDX-License-Identifier: Apache-2.0

package node

// noStore stands for a state directory that cannot be had: the agent stays up
// and looks, and changes nothing.
type noStore struct{ err error }

func (s noStore) Load() (Records, error) {
	return Records{}, &DamagedError{[]Damage{{"the state directory", s.err}}}
}
func (s noStore) SaveTerm(Term) error           { return s.err }
func (s noStore) SavePrepared(Prepared) error   { return s.err }
func (s noStore) SaveStep(Step) error           { return s.err }
func (s noStore) DropPrepared(string) error     { return s.err }
func (s noStore) DropStep(string) error         { return s.err }
func (s noStore) ResetRequested() (bool, error) { return false, s.err }
func (s noStore) ResetDone() error              { return s.err }
func (s noStore) Paused() (bool, string, error) { return false, pauseFile, s.err }
