# The first process of a machine of its own: systemd, with the units of $DIR and nothing of the host's. $SHARED are cgroups
# of the host that its programs may use, by the path that they have in every hierarchy.
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$DIR/run" /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /run/host-cgroups
mount --rbind /sys/fs/cgroup /run/host-cgroups
if [ -n "$SHARED" ]; then
  for own in $CGROUPS; do # the machine's root of each hierarchy
    own=${own#/sys/fs/cgroup/}
    hierarchy=$(dirname "$own")
    mount --bind "/run/host-cgroups/$own" "/sys/fs/cgroup/$hierarchy"
    for c in $SHARED; do
      [ -d "/run/host-cgroups/$hierarchy/$c" ] || continue
      mkdir -p "/sys/fs/cgroup/$hierarchy/$c"
      mount --bind "/run/host-cgroups/$hierarchy/$c" "/sys/fs/cgroup/$hierarchy/$c"
    done
  done
else
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
for d in /etc/systemd/system /usr/lib/systemd/system; do
  mkdir -p "$d" && mount --bind "$DIR$d" "$d"
done
exec env -i PATH="$PATH" container=other SYSTEMD_UNIT_PATH="$UNITS" \
  SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none \
  "$SYSTEMD" --system --unit=machine.target --show-status=no --log-target=console --log-level=info
