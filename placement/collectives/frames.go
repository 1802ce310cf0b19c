package collectives

// Frames is how a job that reduces over a tree cuts gradients into frames: those of an iteration follow each other and
// fill frames, and the last frame is padded. Padding is on the wire, and is no gradient.
type Frames struct {
	Message int64 // bytes of gradient in an iteration; 0: a stream without iterations
	Payload int64 // bytes that fill a frame
}

// FramesOf are those of an iteration of so many bytes, or of a stream, with so many values of 4 bytes in each.
func FramesOf(message int64, lanes int) Frames { return Frames{message, 4 * int64(lanes)} }

// PSNs are the frames of an iteration; 0 of a stream.
func (f Frames) PSNs() int64 {
	size := max(1, f.Payload)
	return Values(f.Message)/size + min(1, Values(f.Message)%size)
}

// Gradients are the bytes of gradient in the first frames of a job.
func (f Frames) Gradients(psns int64) int64 {
	n := f.PSNs()
	if n == 0 {
		return psns * f.Payload
	}
	return psns/n*Values(f.Message) + min(psns%n*f.Payload, Values(f.Message))
}

// Mean is the bytes of gradient of a frame, in the mean over iterations.
func (f Frames) Mean() float64 {
	if n := f.PSNs(); n > 0 {
		return min(float64(f.Payload), float64(Values(f.Message))/float64(n))
	}
	return float64(f.Payload)
}
