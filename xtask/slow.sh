#!/bin/sh
# A command on a slow drive: xtask/slow.sh BYTES_PER_S FOLDER COMMAND...
# What the command reads from the drive of FOLDER, and writes past the page cache, comes no faster.
# By a control group (version 1 or 2); needs root. For example, a fifth of 700 MB/s:
#   xtask/slow.sh 140000000 /tmp ./x lab compare --peer nginx --workload cold --json
set -eu
[ $# -ge 3 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
rate=$1 folder=$2
shift 2
device=$(findmnt --noheadings --output MAJ:MIN --target "$folder" | tr -d ' ')
# Of a partition, the whole: groups know no parts.
[ ! -e "/sys/dev/block/$device/partition" ] || device=$(cat "/sys/dev/block/$device/../dev")
name=nearcast-slow-$$
if [ -d /sys/fs/cgroup/blkio ]; then
    group=/sys/fs/cgroup/blkio/$name
    mkdir "$group"
    echo "$device $rate" >"$group/blkio.throttle.read_bps_device"
    echo "$device $rate" >"$group/blkio.throttle.write_bps_device"
else
    echo +io >/sys/fs/cgroup/cgroup.subtree_control
    group=/sys/fs/cgroup/$name
    mkdir "$group"
    echo "$device rbps=$rate wbps=$rate" >"$group/io.max"
fi
trap 'rmdir "$group"' EXIT
# The first process joins and becomes the command: this one stays outside, to tidy up.
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
