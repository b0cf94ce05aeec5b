// SPDX-License-Identifier: Apache-2.0

// Package doctest holds the documents for operators to the code: every command, flag, make target, link, test and code that they
// name has to exist. It has tests only.
package doctest
