// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// output is the -o flag.
type output struct{ format string }

func (o *output) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table or json")
}

func (o *output) json() bool { return o.format == "json" }

func (o *output) check() error {
	if o.format != "table" && o.format != "json" {
		return usagef("-o %s: want table or json", o.format)
	}
	return nil
}

// emit writes m to stdout, as JSON or by draw, whole or not at all.
func (a *app) emit(o *output, m proto.Message, draw func(*printer)) error {
	var b bytes.Buffer
	if o.json() {
		if err := writeJSON(&b, m); err != nil {
			return err
		}
	} else {
		draw(a.printer(&b, a.env.Stdout))
	}
	return writeAll(a.env.Stdout, b.Bytes())
}

// printer draws into b what will go to w.
func (a *app) printer(b *bytes.Buffer, w io.Writer) *printer {
	return &printer{Buffer: b, style: a.styleFor(w), zone: a.zone}
}

func writeAll(w io.Writer, text []byte) error {
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// note tells the operator something that is not data: one line on stderr.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.env.Stderr, format+"\n", args...)
}
