// Package data is the data plane of a Parameter Service: gradients and models as frames between
// workers' Agents and Aggregators.
//
// A Transport carries frames; TCP is one, and the interface is small enough for RDMA: Send
// returns when the values may be written to again, which is a completion, and Receive asks
// where values go before it moves them, which is a rendezvous. A Hub has a node's connections.
//
// # Frames
//
// A frame is a header of HeaderSize bytes, which begins with the length of what follows it, and
// values. Integers are little-endian, values IEEE 754 binary32, little-endian, too; they go from
// memory to the socket and from there to memory without a copy in between.
//
// Most frames are messages of package migrate. Who they are from and to is not said in them: a
// connection begins with a Hello, by which both ends know each other, and nobody speaks for
// another. It names the Aggregator that is meant, so what was for one that crashed does not
// reach its successor at the same address.
//
// # What is not sent twice
//
// A connection loses nothing while it lasts. So what migrate repeats with values in it goes
// over each connection once: a gradient is repeated as Poke, which has none, and the other two not
// at all.
//
// # Priority
//
// TENSOR_COPY gives way to everything else that its node sends: it goes in pieces, each of which
// waits until nothing else is being written, and what has been has arrived: the answers that tell
// workers of the new place come before it (4 in Figure 13), on the link, too. On a link that is never
// idle it has a seventeenth, and it waits a bounded time for others that get nowhere.
// And its packets are marked as bulk (SO_PRIORITY) for queues that care.
package data
