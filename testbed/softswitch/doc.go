// Package softswitch is the embedded INA switch: ports on network devices, the
// cables in them (rate, delay, loss, queues), the aggregator array of package
// ina, and a P4Runtime server that alone controls it.
//
// # How it works
//
// testbed/softswitch is one thread that reads receive rings (AF_PACKET, TPACKET_V2), runs an engine
// in virtual time and writes with sendmmsg past the queueing discipline. It allocates nothing per
// packet.
//
//   - Cables are in the switch. Each direction is a queue (rate, buffer, ECN threshold), a
//     transmitter that takes size/rate per frame, and a wire with a delay. A cable between two
//     switches is emulated by the end that sends. A host's cable is emulated in both directions by
//     its switch, the host's own NIC queue included.
//   - Virtual time. A frame arrives when the kernel's receive timestamp says, and its departure is
//     computed from that. However late the process runs, frames are due when they should be, so
//     lateness never accumulates into a rate error.
//   - Queues are FIFO, or deficit round robin with one queue per job (queue = "fair"; a ring's
//     frames are known by their TCP port, results for one worker by their UDP ports) or per flow
//     ("flows": each worker's gradients, a job's sums, its results, or those for each worker where
//     a PS sends to one after the other, a connection of TCP), which shares links as NetPack's
//     Algorithm 1 assumes. A full buffer drops from the longest fair queue.
//   - Damage. Loss, duplication and reordering are drawn from the seed per port and direction. The
//     kernel's netem is not needed.
//   - Accounting. Frames into a link + duplicated = frames out of it + dropped + still in it, at
//     every port.
//   - Control. Tables, multicast groups and counters only through P4Runtime; registers answer
//     UNIMPLEMENTED, as BMv2's do. Cables belong to the emulation, not to the switch: they are
//     controlled by lines of JSON on the process's stdin.
//
// Rest. Switch and agents look for packets at most every 1/200 of the shortest round trip (1 ms at
// most) and handle what has come together: a fraction of the wake-ups, for a lateness that virtual
// time takes out again in the switch and that T contains everywhere else.
//
// Offload (emulation.offload). Handing a frame from one process to the next costs far more than
// adding it up. With segmentation offload, agents send up to 32 packets as one UDP datagram with
// UDP_SEGMENT, veth passes it on whole, and a packet socket with PACKET_VNET_HDR delivers it with a
// header that says how to take it apart; on the way out the switch joins what is due at a port and
// of one flow. BenchmarkSwitch then takes in 2.0 to 2.4 million frames a second of 1 KB instead of
// 0.24 to 0.35, and spends 0.4 instead of 3 us of processor time on each. Frames are taken apart
// before they enter a cable, so the emulation stays what it was. The price: what a worker sends
// within one rest leaves at one instant, and NIC counters of hosts count super-frames, so links are
// read at the switches.
//
// Health. The switch reports how late frames left after they were due, frames it lost itself, and
// how busy its thread is. Lateness is judged against the shortest round trip (median above 5 %,
// 99th percentile above 20 %), loss above 10⁻⁴ of all frames, a thread above 90 % of a core. Beyond
// any limit the point is inconclusive: the figures are about this machine then. Agents report the
// lateness of their sends and full sockets alike.
//
// Stalls. A machine that stops for a tenth of a second makes a thousand frames late, and is one
// event: what is late by more than 20 % of the shortest round trip is joined into spans of time
// (testbed/stall), with the place and the cause (Deployment.Stalls). A switch's loop looks at least
// every 10 ms, so that it knows when it stood still with nothing to do; so do the agents', which
// tell of theirs with their samples, and this program itself. Who asks for stalls leaves them out
// of its figures; lateness is then judged of the frames that were due outside of them, by the same
// limits. Stalls of more than a quarter of the time, or of the frames, leave nothing that counts;
// of agents, they are not left out of what is judged, and do not excuse a job whose worker does not
// run. BMv2 keeps no record of its own: its cables' counts, which are a process of ours, and what
// it lost and how busy it was is judged as before.
package softswitch
