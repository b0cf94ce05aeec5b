#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Is the committed generated code what proto/ gives, and can a peer one version older still read us?
# Called by `make generate-check` from the root of the checkout. Changes nothing.
#
#   BUF               the buf to run (default bin/tools/buf)
#   BREAKING_AGAINST  the git revision to stay compatible with: by default the newest release tag, else the
#                     commit before this one; "none" leaves the comparison out
set -eu

buf=${BUF:-bin/tools/buf}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

say() { echo "generate-check: $*"; }

if ! find proto -name '*.proto' 2>/dev/null | grep -q .; then
  say 'no proto files'
  exit 0
fi

say 'buf lint and format'
"$buf" lint
"$buf" format -d --exit-code || { say 'run bin/tools/buf format -w'; exit 1; }

say 'comparing the committed Go with freshly generated Go'
mkdir "$tmp/new"
"$buf" generate -o "$tmp/new"
generated() { (cd "$1/proto" && find . -name '*.pb.go' | sort); }
generated . >"$tmp/have"
generated "$tmp/new" >"$tmp/want"
stale=0
diff -u "$tmp/have" "$tmp/want" || stale=1
while read -r file; do
  [ ! -f "proto/$file" ] || diff -u "proto/$file" "$tmp/new/proto/$file" || stale=1
done <"$tmp/want"
[ "$stale" = 0 ] || { say 'generated code is stale: run make generate and commit the result'; exit 1; }

# baseline prints the revision that this tree must stay compatible with, or nothing.
baseline() {
  if [ -n "${BREAKING_AGAINST:-}" ]; then echo "$BREAKING_AGAINST"; return; fi
  git describe --tags --match 'v*' --abbrev=0 2>/dev/null && return
  if [ -n "$(git status --porcelain -- proto 2>/dev/null)" ]; then
    git rev-parse -q --verify HEAD
  else
    git rev-parse -q --verify HEAD~1
  fi
}

against=$(baseline || true)
case $against in
none) say 'compatibility: left out (BREAKING_AGAINST=none)'; exit 0 ;;
'') say 'compatibility: no earlier commit to compare with'; exit 0 ;;
esac
if ! git cat-file -e "$against:buf.yaml" 2>/dev/null || [ -z "$(git ls-tree -r --name-only "$against" -- proto | grep '\.proto$' || true)" ]; then
  say "compatibility: $against has no proto files"
  exit 0
fi
# Before the first release a commit may break the contract on purpose, by saying why in a trailer.
reason=$(git log -1 --format='%(trailers:key=Wire-Break,valueonly)' 2>/dev/null || true)
if [ -n "$reason" ] && ! git describe --tags --match 'v*' >/dev/null 2>&1; then
  say "compatibility: left out, the commit says Wire-Break: $reason"
  exit 0
fi
say "compatibility with $against"
git archive --format=tar -o "$tmp/old.tar" "$against" buf.yaml proto
"$buf" breaking --against "$tmp/old.tar"
