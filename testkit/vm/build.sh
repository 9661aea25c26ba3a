# Makes the disk of a virtual machine: $1 is the directory of the cache, $2 the file to make, $3 a directory of files to add.
# Debian itself is downloaded once.
set -e
debian=$1/debian
if [ ! -e "$debian.done" ]; then
  rm -rf "$debian"
  debootstrap --variant=minbase --include="$PACKAGES" bookworm "$debian" ${MIRROR:+"$MIRROR"}
  # Only the drivers that the machine has: QEMU emulates each instruction that unpacks the others.
  printf 'MODULES=list\nCOMPRESS=zstd\n' >"$debian/etc/initramfs-tools/conf.d/vm"
  printf '%s\n' virtio_pci virtio_blk virtio_net ext4 crc32c >>"$debian/etc/initramfs-tools/modules"
  chroot "$debian" update-initramfs -u -k all
  chroot "$debian" apt-get clean
  rm -rf "$debian"/var/lib/apt/lists/* "$debian"/usr/share/doc "$debian"/usr/share/locale
  mkdir -p "$debian/var/log/journal"
  chroot "$debian" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer dpkg-db-backup.timer fstrim.timer
  touch "$debian.done"
fi
cp -r --no-preserve=ownership "$3/." "$debian/"
printf 'vm\n' >"$debian/etc/hostname"
printf '127.0.0.1 localhost vm\n' >"$debian/etc/hosts"
printf '/dev/vda / ext4 defaults,errors=remount-ro 0 1\n' >"$debian/etc/fstab"
: >"$debian/etc/machine-id"
chroot "$debian" passwd --quiet --delete root
chroot "$debian" systemctl --quiet enable systemd-networkd containerd vm-guest vm-images
cp "$debian"/boot/vmlinuz-* "$2.vmlinuz"
cp "$debian"/boot/initrd.img-* "$2.initrd"
rm -f "$2.tmp"
mkfs.ext4 -q -F -L root -e remount-ro -E lazy_itable_init=0,lazy_journal_init=0 -d "$debian" "$2.tmp" 4G
mv "$2.tmp" "$2"
