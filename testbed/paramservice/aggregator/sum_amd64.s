#include "textflag.h"

// SSE, which every amd64 has: four values at a time, rounded as one at a time is.

// func addBlocks(to, a, b *float32, blocks int)
TEXT ·addBlocks(SB), NOSPLIT, $0-32
	MOVQ to+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ blocks+24(FP), CX

next:
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS (DX), X2
	MOVUPS 16(DX), X3
	ADDPS  X2, X0
	ADDPS  X3, X1
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	ADDQ   $32, SI
	ADDQ   $32, DX
	ADDQ   $32, DI
	DECQ   CX
	JNE    next
	RET

// func stepBlocks(to, old, sum *float32, rate float32, blocks int) (odd uint32)
TEXT ·stepBlocks(SB), NOSPLIT, $0-44
	MOVQ   to+0(FP), DI
	MOVQ   old+8(FP), SI
	MOVQ   sum+16(FP), DX
	MOVSS  rate+24(FP), X7
	MOVQ   blocks+32(FP), CX
	SHUFPS $0, X7, X7
	XORPS  X6, X6 // of v-v, which has no bit set for a finite v

next:
	MOVUPS (DX), X2
	MOVUPS 16(DX), X3
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MULPS  X7, X2
	MULPS  X7, X3
	SUBPS  X2, X0
	SUBPS  X3, X1
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	SUBPS  X0, X0
	SUBPS  X1, X1
	ORPS   X0, X6
	ORPS   X1, X6
	ADDQ   $32, SI
	ADDQ   $32, DX
	ADDQ   $32, DI
	DECQ   CX
	JNE    next

	MOVAPS X6, X0
	SHUFPS $0x4E, X0, X0
	ORPS   X0, X6
	MOVAPS X6, X0
	SHUFPS $0xB1, X0, X0
	ORPS   X0, X6
	MOVL   X6, AX
	MOVL   AX, odd+40(FP)
	RET
