// SPDX-License-Identifier: Apache-2.0

// Package story holds the tests that play the product's story in the lab: real processes, real kernels, real
// frames, judged by what the kernels hold and by a prober that shares no code with the product.
package story
