#!/bin/sh
# drive SERIAL: the block device of the NVMe drive with this serial number. Kernel names are not
# stable, serial numbers are.
for controller in /sys/class/nvme/nvme*; do
    [ "$(tr -d ' ' <"$controller/serial" 2>/dev/null)" = "$1" ] || continue
    for namespace in "$controller"/nvme*n1; do
        [ -e "$namespace" ] || continue
        name=${namespace##*/}
        # With multipath the controller's folder says nvme0c0n1.
        case $name in *c[0-9]*) name=${name%%c*}n1 ;; esac
        echo "/dev/$name"
        exit 0
    done
done
exit 1
