package ina

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// ATPSlots returns the w distinct aggregators, out of m, that a job asks for under
// atp addressing: PSN p uses the one at p mod w. As in ATP's hosts
// (common/HashTable.cc) the choice is the CRC-32 of job and index, with a salt
// that is bumped until the slot is free within the job; other jobs' slots are not
// known here, so collisions are between jobs only. ATP's hosts also remap a slot
// after a collision; these do not.
func ATPSlots(job uint16, w, m int) ([]uint16, error) {
	if w < 1 || w > m || m > 1<<16 {
		return nil, fmt.Errorf("atp slots: %d distinct slots of %d aggregators (at most %d)", w, m, 1<<16)
	}
	slots := make([]uint16, 0, w)
	taken := make([]bool, m)
	var key [8]byte // job, index, salt, each low byte first
	binary.LittleEndian.PutUint16(key[:], job)
	for i := range w {
		binary.LittleEndian.PutUint16(key[2:], uint16(i))
		for salt := uint32(0); ; salt++ {
			// CRC-32 is one to one in a 32-bit suffix, so every slot comes up.
			binary.LittleEndian.PutUint32(key[4:], salt)
			if s := crc32.ChecksumIEEE(key[:]) % uint32(m); !taken[s] {
				taken[s] = true
				slots = append(slots, uint16(s))
				break
			}
		}
	}
	return slots, nil
}
