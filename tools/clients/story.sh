# Sourced by the programs in shell: what they do is printed with what a user sees, so that two worlds can be compared.
# What differs from run to run (names by chance, ages, addresses) stands there as a word in capitals: see veil.sed.
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

# Runs a quiet command until it succeeds, half a minute at most.
eventually() {
  local end=$((SECONDS + 30))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "not within 30 s: $*"
    sleep 0.2
  done
}
