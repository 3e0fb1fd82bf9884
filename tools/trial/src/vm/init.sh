#!/bin/busybox sh
# The guest's first process: mounts, the network, then one line of shell at a time from the second
# serial port. What it prints goes to the console, which is the machine's log.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run/nearcast /srv/nearcast /root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t tmpfs tmpfs /tmp
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo -F /dev/ttyS0
stty raw -echo -F /dev/ttyS1
for module in $(cat /modules.list); do
    insmod "/modules/$module" || echo "insmod $module failed"
done
export NO_COLOR=1 NEARCAST_LOG=info
ulimit -n 65536
ulimit -l unlimited
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
echo "kernel $(uname -r)"
exec 3<>/dev/ttyS1
while read -r line <&3; do
    eval "$line" >/tmp/said 2>&1 </dev/null
    status=$?
    # The last line of an answer begins with what no answer has.
    { cat /tmp/said; echo; echo "@@ $status"; } >&3
done
