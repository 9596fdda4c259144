#!/bin/sh
# Compares a CUDA driver's answers with the transcript, and counts the differences.
#
# usage: run.sh [LIBRARY]                  compare (default: the system's libcuda.so.1); exit 1 if any answer differs
#        run.sh --record DRIVER [LIBRARY]  write its answers into transcript.tsv as recorded on DRIVER, such as "570.86.10 H200"
#
# Options before the others, in this order:
#   --answers FILE     stores the answers in FILE as they come. If FILE exists, its answers are used and no driver is called.
#   --beyond           asks for the facts of the family `beyond`, too: about more managed memory than the device has. Never on a real
#                      GPU: it may hang, with all that use it.
#   --full             asks for the facts of the family `full`, too: beside plain memory that takes nearly all of the device. On a GPU
#                      that nobody else uses.
#   --only FAMILY      asks for the facts of this family alone, such as `full`.
#
# softgpu must give every recorded answer: its test fails until softgpu agrees. Two answers say nothing of other drivers:
#   absent      the driver lacks the function. It is never recorded, and agrees with every line.
#   signal N    the call ended the process. Any answer but SUCCESS agrees with it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
driver=
kept=
if [ "${1-}" = --answers ]; then
    kept=${2:?usage: run.sh --answers FILE}
    shift 2
fi
beyond=
if [ "${1-}" = --beyond ]; then
    beyond=--beyond
    shift
fi
full=
if [ "${1-}" = --full ]; then
    full=--full
    shift
fi
only=
if [ "${1-}" = --only ]; then
    only=${2:?usage: run.sh --only FAMILY}
    shift 2
fi
if [ "${1-}" = --record ]; then
    driver=${2:?usage: run.sh --record DRIVER [LIBRARY]}
    shift 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Facts about two processes need one machine for both; a real driver ignores this variable.
export SOFTGPU_PRIVATE="${SOFTGPU_PRIVATE:-facts-$$}"
# Some facts are of drivers from 13.1 on, some of two devices, and some of handles that are given again.
export SOFTGPU="${SOFTGPU:-driver=13050,count=2,reuse=lifo}"
answers=${kept:-$work/answers}
if ! [ -e "$answers" ]; then
    "${CC:-cc}" -std=gnu11 -O1 -o "$work/facts" "$here"/*.c -ldl -lpthread
    "$work/facts" $beyond $full ${only:+--only "$only"} "${1:-libcuda.so.1}" >"$answers"
fi
if [ -n "$driver" ]; then
    [ -s "$answers" ] || { echo "no answer: nothing is recorded" >&2; exit 1; }
    # In the transcript's order. A fact without an answer (its family ended early) keeps its line.
    awk -F '\t' -v driver="$driver" '
        FNR == NR { if ($1 ~ /\.(ended|missing\.|cannot\.)/) print $0 > "/dev/stderr"; else answer[$1] = $2; next }
        ($1 in answer) && answer[$1] == "absent" { print; print "absent: " $1 > "/dev/stderr"; next }
        /^#/ || !($1 in answer) { print; if (!/^#/) print "not answered: " $1 > "/dev/stderr"; next }
        { if (answer[$1] != $2) print $1 ": " $2 " -> " answer[$1] > "/dev/stderr"
          print $1 "\t" answer[$1] "\t" driver }
    ' "$answers" "$here/transcript.tsv" >"$work/transcript"
    cp "$work/transcript" "$here/transcript.tsv"
    echo "recorded $(wc -l <"$answers") facts on $driver"
    exit 0
fi
awk -F '\t' -v beyond="$beyond" -v full="$full" -v only="$only" '
    !beyond && /^beyond\./ || !full && /^full\./ { next }
    only && index($1, only ".") != 1 { next }
    FNR == NR { if (!/^#/) { want[$1] = $2; by[$1] = $3 }; next }
    !($1 in want) { print "not in the transcript: " $0; bad++; next }
    $2 == "absent" || (want[$1] ~ /^signal / && $2 != "SUCCESS") { want[$1] = $2 }
    $2 == "absent" { absent++; delete want[$1]; next }
    { if (want[$1] != $2) { print $1 ": transcript " want[$1] " (" by[$1] "), here " $2; bad++ }
      else if (by[$1] == "unverified") unverified++; else recorded++
      delete want[$1] }
    END {
        for (fact in want) { print "not answered: " fact; bad++ }
        printf "%d facts agree with a recorded driver, %d with an unverified line, %d are of functions that are absent, %d differ\n", recorded, unverified, absent, bad
        exit bad > 0
    }
' "$here/transcript.tsv" "$answers"
