// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/vipmove/vipmove/witness"

// lossBoundPercent is the loss rate in percent that failed of sent requests rule out at 95 % confidence.
func lossBoundPercent(sent, failed uint64) float64 { return 100 * witness.LossBound(failed, sent) }
