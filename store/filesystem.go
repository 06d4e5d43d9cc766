package store

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// remote are file systems on which the shared memory or the locks of WAL do not work, by their magic number.
var remote = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB",
	0x01021997: "9p",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0x5346414f: "AFS",
}

// fileSystem refuses a directory on which WAL would lose data.
func fileSystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if name, bad := remote[uint32(st.Type)]; bad {
		return fmt.Errorf("%w: %s is on %s, where SQLite's WAL is not safe; move the home to a local disk", ErrInvalid, dir, name)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%w: the file system of %s", ErrReadOnly, dir)
	}
	return nil
}
