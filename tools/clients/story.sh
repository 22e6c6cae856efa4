# Sourced by the programs in shell: what they do is printed with what a user sees, so that two worlds can be compared.
# What differs from run to run (names by chance, ages, addresses) stands there as a word in capitals: see veil.sed.
# How long anything may take that is sure to come, in seconds: machines are slow and busy.
patience=240
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
said=""

fail() {
  echo "DIFFERS: $*"
  exit 1
}

# Runs a command and prints its outcome; its output is in `said`.
try() {
  local code=0
  said=$("$@" 2>&1) || code=$?
  said=$(sed -E -f "$tools/veil.sed" <<<"$said")
  printf '$ %s\n' "$(sed -E -f "$tools/veil.sed" <<<"$*")"
  [ -z "$said" ] || printf '%s\n' "$said"
  return $code
}

# A command that must succeed.
run() { try "$@" || fail "it should have succeeded, but ended with $?"; }

# A command that must fail.
refused() { ! try "$@" || fail "it should have failed"; }

# The lines of a command whose order is chance, each once; the parts of a warning stand in any order, so it is left out.
sorted() { "$@" 2>&1 | grep -v '^Warning: ' | sort -u; }

# What the last command must have said.
see() {
  local text
  for text in "$@"; do
    [[ $said == *"$text"* ]] || fail "nothing was said of: $text"
  done
}

# Runs a quiet command until it succeeds.
eventually() {
  local end=$((SECONDS + patience))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "not within $patience s: $*"
    sleep 0.2
  done
}

# A namespace with what controllers put into every one, so that no list of it has more or less by chance.
namespace() {
  run kubectl create namespace "$1"
  eventually kubectl --namespace "$1" get serviceaccounts/default configmaps/kube-root-ca.crt
}
