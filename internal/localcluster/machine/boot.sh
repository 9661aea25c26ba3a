# The first process of a machine of its own: systemd, with the units of $DIR and nothing of the host's.
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$DIR/run" /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for d in /etc/systemd/system /usr/lib/systemd/system; do
  mkdir -p "$d" && mount --bind "$DIR$d" "$d"
done
exec env -i PATH="$PATH" container=other SYSTEMD_UNIT_PATH="$UNITS" \
  SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none \
  "$SYSTEMD" --system --unit=machine.target --show-status=no --log-target=console --log-level=info
