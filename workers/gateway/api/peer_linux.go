package api

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// sameUser looks up who owns the other end of a loopback connection. The kernel lists each socket with its owner;
// ours is the row whose two addresses are those of this connection the other way round.
func sameUser(local, remote net.Addr) error {
	us, err1 := netip.ParseAddrPort(local.String())
	peer, err2 := netip.ParseAddrPort(remote.String())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	us, peer = unmapped(us), unmapped(peer)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		uid, found, err := socketOwner(table, peer, us)
		switch {
		case err != nil:
			return err
		case !found:
			continue
		case uid == os.Getuid() || uid == 0:
			return nil
		}
		return fmt.Errorf("it comes from user %d", uid)
	}
	return errors.New("no process holds its other end")
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Columns of /proc/net/tcp.
const (
	columnLocal, columnRemote, columnUID, columnInode = 1, 2, 7, 9
)

func socketOwner(table string, local, remote netip.AddrPort) (uid int, found bool, err error) {
	f, err := os.Open(table)
	if errors.Is(err, os.ErrNotExist) { // no IPv6
		return 0, false, nil
	} else if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		row := strings.Fields(lines.Text())
		if len(row) <= columnInode || tableAddr(row[columnLocal]) != local || tableAddr(row[columnRemote]) != remote {
			continue
		}
		// A socket that no process has any more belongs to nobody; the kernel shows it as root's.
		if row[columnInode] == "0" {
			return 0, false, nil
		}
		uid, err := strconv.Atoi(row[columnUID])
		return uid, err == nil, err
	}
	return 0, false, lines.Err()
}

// littleEndian is the order of bytes of this machine.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// tableAddr reads an address as the table has it: 32-bit words in the machine's order, and the port, in hex.
func tableAddr(s string) netip.AddrPort {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	p, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}
	}
	if littleEndian {
		for word := range slices.Chunk(raw, 4) {
			slices.Reverse(word)
		}
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(p))
}
