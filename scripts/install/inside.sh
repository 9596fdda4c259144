#!/bin/sh
# The part of check_install.sh that runs inside the root: see there.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/root
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm 2>/dev/null || { mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm; }
[ -e /dev/null ] && [ -e /dev/urandom ] || mount -t devtmpfs dev /dev 2>/dev/null || true

fail() { echo "FAILED: $*" >&2; exit 1; }
done_() { echo "   $*" >&2; }
# Everything but what dpkg notes about any package.
listing() {
    find / -xdev \( -path /proc -o -path /root -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log \
        -o -path /dev \) -prune -o -print | sort
}
until_is() { # SECONDS COMMAND...: until the command succeeds
    left=$(($1 * 10))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}

listing >/root/before
dpkg -i /root/1.deb >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; fail "the package does not install"; }
done_ "installed $(dpkg-query -W -f '${Version}' gpushare): $(gpushare --version)"

gpushare run --gpu soft --mem-limit 1GiB -- gpushare devices >/root/seen || fail "a tenant does not run"
grep -q "1 GiB" /root/seen || fail "a tenant does not see its limit: $(cat /root/seen)"
done_ "a tenant runs and sees its limit"

gpushare doctor --gpu soft --json >/root/doctor || fail "doctor fails: $(cat /root/doctor)"
for check in driver nvml library limit-holds variables folders-and-clock; do
    grep -o "{\"check\":\"$check\",\"verdict\":\"ok\"" /root/doctor >/dev/null ||
        fail "doctor: $check is not ok: $(cat /root/doctor)"
done
rm -f /root/doctor
done_ "doctor proves a limit: $(gpushare doctor --gpu soft | grep -o 'a limit held.*')"

# Each round of the tenant is a new process, with the library that the tenant began with. Its program
# and its driver are not the package's, which will be removed.
cp /usr/bin/gpushare /root/program
mkdir /root/driver
cp /usr/lib/gpushare/libsoftgpu_cuda.so /root/driver/libcuda.so.1
cp /usr/lib/gpushare/libsoftgpu_nvml.so /root/driver/libnvidia-ml.so.1
export LD_LIBRARY_PATH=/root/driver SOFTGPU=name=check
cat >/root/load.sh <<'LOAD'
while [ ! -e /root/stop ]; do
    /root/program devices >/root/round || exit 1
    grep -q "1 GiB" /root/round || exit 2
    echo round >>/root/rounds
done
LOAD
: >/root/rounds
gpushare run --name load --mem-limit 1GiB -- sh /root/load.sh 2>/root/complaints &
load=$!
rounds() { wc -l </root/rounds; }
beyond() { [ "$(rounds)" -gt "$1" ]; }
until_is 20 beyond 2 || fail "the tenant does not work: $(cat /root/complaints)"
old=$(readlink -f /usr/lib/gpushare/libgpushare.so)
dpkg -i /root/2.deb >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; fail "the package does not upgrade"; }
dpkg -i --force-confold /root/2.deb >/root/dpkg.log 2>&1 || fail "the package does not install twice"
new=$(readlink -f /usr/lib/gpushare/libgpushare.so)
[ "$old" != "$new" ] || fail "an upgrade has the library of before: $new"
[ -e "$old" ] || fail "the library of a running tenant is gone: $old"
until_is 20 beyond $(($(rounds) + 2)) || fail "the tenant stands still after the upgrade"
grep -qF "$old" /proc/[0-9]*/maps || fail "the tenant does not use the library that it began with"
done_ "upgraded under a tenant: $(rounds) rounds, none failed"

dpkg -r gpushare >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; fail "the package cannot be removed"; }
grep -q "kept /usr/lib/gpushare/versions" /root/dpkg.log || fail "nothing is said of a version in use"
kill -0 $load || fail "the tenant ended with the package: $(cat /root/complaints)"
until_is 20 beyond $(($(rounds) + 2)) || fail "the tenant stands still after the removal"
touch /root/stop
wait $load || fail "the tenant failed with status $?: $(cat /root/complaints)"
[ ! -s /root/complaints ] || fail "the tenant was told: $(cat /root/complaints)"
done_ "removed: the tenant went on to its end"

# Nothing has been installed since: the purge alone removes what the tenant kept.
[ -e "$old" ] || fail "the library of the tenant went before the purge"
dpkg -P gpushare >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; fail "the package cannot be purged after a removal"; }
[ ! -e /usr/lib/gpushare ] || fail "a purge leaves versions that nothing uses: $(cat /root/dpkg.log)"
for step in "-i /root/2.deb" "-r gpushare"; do
    # shellcheck disable=SC2086  # an action and its argument
    dpkg $step >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; fail "dpkg $step after a purge"; }
done
done_ "purged: the version that the tenant had is gone"

# A stand-in for a systemd whose daemon does not start, as without a driver. Debian's own helpers keep
# the links of units, and ask it.
mkdir -p /root/stand-in /run/systemd/system
cat >/root/stand-in/systemctl <<'STANDIN'
#!/bin/sh
echo "$*" >>/root/asked
link=/etc/systemd/system/multi-user.target.wants/gpushared.service
case " $* " in
    *" is-enabled "*gpushared*) [ -e $link ] && echo enabled ;;
    *" start "* | *restart* | *" is-active "* | *" is-enabled "*) exit 1 ;;
esac
STANDIN
chmod +x /root/stand-in/systemctl
link=/etc/systemd/system/multi-user.target.wants/gpushared.service
again() { # WHAT: installs over what was removed
    : >/root/asked
    PATH="/root/stand-in:$PATH" dpkg -i /root/2.deb >/root/dpkg.log 2>&1 ||
        { cat /root/dpkg.log; fail "the package does not install again ($1)"; }
    [ "$(dpkg-query -W -f '${Status}' gpushare)" = "install ok installed" ] || fail "it is half-configured ($1)"
}
again "after a removal"
[ -e $link ] || fail "the unit is not enabled again"
grep -q "start gpushared.service" /root/asked || fail "the daemon is not started: $(cat /root/asked)"
grep -q "gpushared.service did not start" /root/dpkg.log || fail "it does not say that no daemon runs"
mkdir /run/gpushare
PATH="/root/stand-in:$PATH" dpkg -r gpushare >/root/dpkg.log 2>&1 || fail "the package cannot be removed again"
[ -L $link ] && [ ! -e $link ] || fail "the link of the unit is not left for the next installation"
# A copy of the programs, as a user has them without the package.
mkdir /root/own
dpkg-deb -x /root/2.deb /root/own
mkdir -p /root/own/usr/lib/gpushare/gpushare-preload
cp /root/own/usr/lib/gpushare/package/libgpushare.so /root/own/usr/lib/gpushare/
/root/own/usr/bin/gpushare run --mem-limit 1GiB -- true 2>/root/complaints ||
    fail "what a removed package leaves keeps a user's run out: $(cat /root/complaints)"
mkdir -p /etc/gpushare
: >/etc/gpushare/config.toml
rm $link
again "with a unit that the operator disabled"
[ ! -e $link ] || fail "a unit that the operator disabled is enabled"
done_ "installed again: enabled and started; without a driver it says so; what was disabled stays so"

PATH="/root/stand-in:$PATH" dpkg -P gpushare >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; fail "the package cannot be purged"; }
rm -r /run/systemd
listing >/root/after
diff /root/before /root/after >/root/left || fail "left behind: $(cat /root/left)"
done_ "purged: nothing is left, settings neither"
