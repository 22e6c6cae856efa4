# The end of a setup script, which sources it: makes the parts that its tests need, once per version, and prints their folder.
#
#   setup.sh          make all that is missing
#   setup.sh where    only print the folder
#   setup.sh PART     make this one
#
# The script brings: `cache`, the folder; `parts`, their names; `kind`, what a part is called after its name; a function
# `make_PART` for each; and `needs PART`, which prints the program without which it can't be made.
# A part that can't be made is named in one line on stderr, the others are made all the same, and the exit code is 1.
main() {
  if [ "${1:-}" = where ]; then
    echo "$cache"
    return
  fi
  mkdir -p "$cache"
  if [ $# -eq 1 ]; then
    "make_$1"
    return
  fi
  local failed=0 part program
  for part in "${parts[@]}"; do
    program=$(needs "$part")
    # A process of its own: in a condition `set -e` holds for no function of this one.
    if ! command -v "$program" >/dev/null || ! "$0" "$part"; then
      echo "NOT MADE: $part$kind (needs $program and a network)" >&2
      failed=1
    fi
  done
  echo "$cache"
  return $failed
}
main "$@"
