package ina

// Mode is how a switch treats a job's gradient packets.
type Mode uint8

const (
	Forward     Mode = iota // carried along the tree, never summed here (transit switch, or INA off)
	Statistical             // an aggregator is reserved by a PSN's first packet and released by its result (ATP, NetPack section 2.2)
	Synchronous             // the job owns a region; slot = PSN mod Size + Base, kept one window for resends (SwitchML)
	Exclusive               // as Synchronous, but only while the job has the switches of its tree to itself (SHARP)
)

// Addressing is how a statistical switch finds the aggregator of a (job, PSN).
type Addressing uint8

const (
	Pool   Addressing = iota // any free aggregator of the region
	Hash                     // Base + H(job, PSN) mod Size, H uniform
	Linear                   // Base + (Offset + PSN) mod Size
	// ATP is Base + the slot the host wrote into the packet, mod Size. Sums that a switch
	// makes carry no slot, so it is for switches that get packets of hosts only. One that
	// gets sums of the job finds its aggregators itself, with Hash.
	ATP
)

// JobEntry is what a switch knows about one job: the parameters of its entry in
// the P4 table "job" (testbed/p4). Memory is table-action parameters because
// that is what every P4Runtime target can change at run time.
type JobEntry struct {
	Job        uint16
	Epoch      uint16 // packets of another epoch are dropped and counted
	Mode       Mode
	Addressing Addressing
	Base, Size uint32 // aggregators [Base, Base+Size) of the switch's array; jobs may share a region; Size 0: none
	Offset     uint32 // linear addressing only
	Expect     uint64 // bitmap of all workers below this switch: a sum with these bits is complete here
	Root       bool   // the switch nearest the PS; in the modes without a PS it turns complete sums into results
	Window     uint32 // PSNs the job may have outstanding; binding decisions are remembered for at least twice that
	UpPort     uint32 // port towards the PS
	DownGroup  uint16 // multicast group that reaches every worker below
}
