//! Whole kernels in the forms that compilers give them.

use crate::common::{BASE, Device, launch, module, run};

/// As NVRTC writes it: parameters by number, one thread an element.
const VADD: &str = "
.visible .entry _Z4vaddPKfS0_Pfi(
	.param .u64 _Z4vaddPKfS0_Pfi_param_0,
	.param .u64 _Z4vaddPKfS0_Pfi_param_1,
	.param .u64 _Z4vaddPKfS0_Pfi_param_2,
	.param .u32 _Z4vaddPKfS0_Pfi_param_3
)
{
	.reg .pred 	%p<2>;
	.reg .f32 	%f<4>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<11>;

	ld.param.u64 	%rd1, [_Z4vaddPKfS0_Pfi_param_0];
	ld.param.u64 	%rd2, [_Z4vaddPKfS0_Pfi_param_1];
	ld.param.u64 	%rd3, [_Z4vaddPKfS0_Pfi_param_2];
	ld.param.u32 	%r2, [_Z4vaddPKfS0_Pfi_param_3];
	.loc	1 4 5
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r1, %r3, %r4, %r5;
	setp.ge.s32 	%p1, %r1, %r2;
	@%p1 bra 	$L__BB0_2;

	cvta.to.global.u64 	%rd4, %rd1;
	mul.wide.s32 	%rd5, %r1, 4;
	add.s64 	%rd6, %rd4, %rd5;
	cvta.to.global.u64 	%rd7, %rd2;
	add.s64 	%rd8, %rd7, %rd5;
	ld.global.nc.f32 	%f1, [%rd8];
	ld.global.nc.f32 	%f2, [%rd6];
	add.f32 	%f3, %f2, %f1;
	cvta.to.global.u64 	%rd9, %rd3;
	add.s64 	%rd10, %rd9, %rd5;
	st.global.f32 	[%rd10], %f3;

$L__BB0_2:
	ret;
}
";

#[test]
fn a_vector_is_added_element_by_element() {
    let mut device = Device::new(4096);
    let (a, b, out) = (BASE, BASE + 1024, BASE + 2048);
    device.put(a, (0..200).map(|at| (at as f32).to_le_bytes()));
    device.put(b, (0..200).map(|at| (0.5 * at as f32).to_le_bytes()));
    let module = module(VADD);
    // 7 blocks of 32 threads for 200 elements: the last threads have none.
    let executed = run(
        launch(&module, "_Z4vaddPKfS0_Pfi", 7, 32, &[a, b, out, 200]),
        &mut device,
    )
    .unwrap();
    let expected: Vec<f32> = (0..200).map(|at| 1.5 * at as f32).collect();
    assert_eq!(device.floats(out, 200), expected);
    assert_eq!(device.words(out + 800, 10), [0; 10]);
    assert_eq!(
        executed,
        200 * 22 + 24 * 11,
        "each instruction of each thread, also those whose guard does not hold"
    );
}

/// A tree in shared memory with a barrier a level; the sum goes to one word atomically.
const REDUCE: &str = "
.shared .align 4 .b8 part[512];
.visible .entry reduce(.param .u64 src, .param .u64 n, .param .u64 sum)
{
	.reg .pred %p<5>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
	ld.param.u64 %rd1, [src]; ld.param.u32 %r1, [n]; ld.param.u64 %rd2, [sum];
	mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x;
	mad.lo.s32 %r5, %r4, %r3, %r2;
	mov.u32 %r6, 0;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra $L_STORE;
	mul.wide.u32 %rd3, %r5, 4;
	add.s64 %rd4, %rd1, %rd3;
	ld.u32 %r6, [%rd4];
$L_STORE:
	mov.u32 %r7, part;
	shl.b32 %r8, %r2, 2;
	add.s32 %r9, %r7, %r8;
	st.shared.u32 [%r9], %r6;
	bar.sync 0;
	shr.u32 %r10, %r3, 1;
$L_LOOP:
	setp.eq.s32 %p2, %r10, 0;
	@%p2 bra $L_END;
	setp.ge.u32 %p3, %r2, %r10;
	@%p3 bra $L_NEXT;
	shl.b32 %r11, %r10, 2;
	add.s32 %r12, %r9, %r11;
	ld.shared.u32 %r13, [%r12];
	ld.shared.u32 %r14, [%r9];
	add.s32 %r15, %r14, %r13;
	st.shared.u32 [%r9], %r15;
$L_NEXT:
	bar.sync 0;
	shr.u32 %r10, %r10, 1;
	bra.uni $L_LOOP;
$L_END:
	setp.ne.s32 %p4, %r2, 0;
	@%p4 ret;
	ld.shared.u32 %r16, [part];
	red.global.add.u32 [%rd2], %r16;
	ret;
}
";

#[test]
fn a_reduction_uses_shared_memory_barriers_and_an_atomic_sum() {
    let mut device = Device::new(8192);
    device.put(BASE, (0..1000_u32).map(u32::to_le_bytes));
    let sum = BASE + 4096;
    run(
        launch(&module(REDUCE), "reduce", 8, 128, &[BASE, 1000, sum]),
        &mut device,
    )
    .unwrap();
    assert_eq!(device.words(sum, 1), [(0..1000).sum()]);
}

#[test]
fn a_histogram_counts_with_atomics_in_shared_and_global_memory() {
    let text = "
.visible .entry histogram(.param .u64 src, .param .u64 bins) {
	.reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
	.shared .align 4 .u32 local[16];
	ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [bins];
	mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 15; mov.u32 %r2, local; mad.lo.u32 %r3, %r1, 4, %r2;
	@!%p1 st.shared.u32 [%r3], 0;
	barrier.sync 0;
	mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r6, %r4, %r5, %r1; cvt.u64.u32 %rd3, %r6; add.u64 %rd4, %rd1, %rd3;
	ld.global.u8 %r7, [%rd4]; and.b32 %r7, %r7, 15; mad.lo.u32 %r8, %r7, 4, %r2;
	atom.shared.add.u32 %r9, [%r8], 1;
	barrier.sync 0;
	@%p1 exit;
	ld.shared.u32 %r10, [%r3]; mad.wide.u32 %rd5, %r1, 4, %rd2; red.add.u32 [%rd5], %r10;
	ret; }";
    let mut device = Device::new(2048);
    let bytes: Vec<u8> = (0..512_u32).map(|at| (at * at / 7) as u8).collect();
    device.put(BASE, bytes.iter().map(|byte| [*byte]));
    let bins = BASE + 1024;
    run(
        launch(&module(text), "histogram", 8, 64, &[BASE, bins]),
        &mut device,
    )
    .unwrap();
    let mut expected = [0; 16];
    bytes
        .iter()
        .for_each(|byte| expected[usize::from(byte & 15)] += 1);
    assert_eq!(device.words(bins, 16), expected);
}

#[test]
fn a_product_of_matrices_works_tile_by_tile() {
    // 32x32 matrices, tiles of 8x8; vectors of four for the second one.
    let text = "
.extern .shared .align 16 .b8 tiles[];
.visible .entry matmul(.param .u64 a, .param .u64 b, .param .u64 c) {
	.reg .pred %p<2>; .reg .f32 %f<6>; .reg .b32 %r<24>; .reg .b64 %rd<12>;
	ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
	mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y;
	mad.lo.s32 %r5, %r3, 8, %r1; mad.lo.s32 %r6, %r4, 8, %r2;
	mov.f32 %f1, 0f00000000; mov.u32 %r7, 0;
	mov.u32 %r8, tiles; mad.lo.s32 %r9, %r2, 8, %r1; mad.lo.s32 %r10, %r9, 4, %r8;
$LOOP:
	mad.lo.s32 %r11, %r6, 32, %r7; add.s32 %r11, %r11, %r1; mul.wide.s32 %rd4, %r11, 4; add.s64 %rd5, %rd1, %rd4; ld.global.f32 %f2, [%rd5];
	add.s32 %r12, %r7, %r2; mad.lo.s32 %r12, %r12, 32, %r5; mul.wide.s32 %rd6, %r12, 4; add.s64 %rd7, %rd2, %rd6; ld.global.f32 %f3, [%rd7];
	st.shared.f32 [%r10], %f2; st.shared.f32 [%r10+256], %f3;
	bar.sync 0;
	mov.u32 %r13, 0;
$INNER:
	mad.lo.s32 %r14, %r2, 8, %r13; mad.lo.s32 %r15, %r14, 4, %r8; ld.shared.f32 %f4, [%r15];
	mad.lo.s32 %r16, %r13, 8, %r1; mad.lo.s32 %r17, %r16, 4, %r8; ld.shared.f32 %f5, [%r17+256];
	fma.rn.f32 %f1, %f4, %f5, %f1;
	add.s32 %r13, %r13, 1; setp.lt.s32 %p1, %r13, 8; @%p1 bra $INNER;
	bar.sync 0;
	add.s32 %r7, %r7, 8; setp.lt.s32 %p1, %r7, 32; @%p1 bra $LOOP;
	mad.lo.s32 %r18, %r6, 32, %r5; mul.wide.s32 %rd8, %r18, 4; add.s64 %rd9, %rd3, %rd8; st.global.f32 [%rd9], %f1;
	ret; }";
    let mut device = Device::new(3 * 4096);
    let value = |at: usize, step: usize| ((at * step) % 13) as f32 - 6.0;
    device.put(BASE, (0..1024).map(|at| value(at, 5).to_le_bytes()));
    device.put(BASE + 4096, (0..1024).map(|at| value(at, 7).to_le_bytes()));
    let mut launch = launch(
        &module(text),
        "matmul",
        4,
        8,
        &[BASE, BASE + 4096, BASE + 8192],
    );
    (launch.grid, launch.block, launch.dynamic_shared) = ([4, 4, 1], [8, 8, 1], 512);
    run(launch, &mut device).unwrap();
    let expected: Vec<f32> = (0..1024)
        .map(|at| {
            (0..32)
                .map(|k| value(at / 32 * 32 + k, 5) * value(k * 32 + at % 32, 7))
                .sum()
        })
        .collect();
    assert_eq!(device.floats(BASE + 8192, 1024), expected);
}

#[test]
fn a_warp_sums_its_lanes_by_shuffles() {
    let text = "
.visible .entry sums(.param .u64 src, .param .u64 out) {
	.reg .pred %p<3>; .reg .f32 %f<8>; .reg .b32 %r<8>; .reg .b64 %rd<6>;
	ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [out];
	mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; ld.global.f32 %f1, [%rd4];
	mov.u32 %r2, 16;
$LOOP:
	mov.b32 %r3, %f1;
	shfl.sync.down.b32 %r4|%p1, %r3, %r2, 31, -1;
	mov.b32 %f2, %r4; add.f32 %f1, %f1, %f2;
	shr.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra $LOOP;
	mov.u32 %r5, %laneid; setp.ne.u32 %p1, %r5, 0; @%p1 bra $END;
	mov.u32 %r6, %warpid; mad.wide.u32 %rd5, %r6, 4, %rd2; st.global.f32 [%rd5], %f1;
$END:
	ret; }";
    let mut device = Device::new(2048);
    device.put(BASE, (0..128).map(|at| (at as f32).to_le_bytes()));
    run(
        launch(&module(text), "sums", 1, 128, &[BASE, BASE + 1024]),
        &mut device,
    )
    .unwrap();
    let expected: Vec<f32> = (0..4)
        .map(|warp| (0..32).map(|lane| (32 * warp + lane) as f32).sum())
        .collect();
    assert_eq!(device.floats(BASE + 1024, 4), expected);
}

#[test]
fn functions_take_parameters_call_themselves_and_keep_local_memory() {
    // As numba writes functions: results through a pointer into the caller's local memory.
    let text = "
.func (.param .b32 result) factorial(.param .b32 n) {
	.reg .pred %p<2>; .reg .b32 %r<6>;
	ld.param.u32 %r1, [n];
	mov.u32 %r2, 1;
	setp.le.u32 %p1, %r1, 1;
	@%p1 bra $END;
	sub.s32 %r3, %r1, 1;
	{ // callseq 0, 0
	.reg .b32 temp_param_reg;
	.param .b32 param0;
	st.param.b32 [param0+0], %r3;
	.param .b32 retval0;
	call.uni (retval0), factorial, (param0);
	ld.param.b32 %r4, [retval0+0];
	}
	mul.lo.s32 %r2, %r1, %r4;
$END:
	st.param.b32 [result+0], %r2;
	ret;
}
.func (.reg .b64 %out) twice(.reg .b64 %in) { add.u64 %out, %in, %in; ret; }
.func squares(.param .b64 into, .param .align 8 .b8 pair[16]) {
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [into]; ld.param.u64 %rd2, [pair]; ld.param.u64 %rd3, [pair+8];
	mul.lo.u64 %rd2, %rd2, %rd2; mul.lo.u64 %rd3, %rd3, %rd3; st.u64 [%rd1], %rd2; st.u64 [%rd1+8], %rd3; ret;
}
.visible .entry calls(.param .u64 out) {
	.local .align 16 .b8 __local_depot0[16];
	.reg .b64 %SP, %SPL; .reg .b32 %r<4>; .reg .b64 %rd<12>;
	mov.u64 %SPL, __local_depot0; cvta.local.u64 %SP, %SPL;
	ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 3;
	{ .param .b32 param0; .param .b32 retval0; st.param.b32 [param0], %r1; call (retval0), factorial, (param0); ld.param.b32 %r2, [retval0]; }
	cvt.u64.u32 %rd2, %r2;
	call (%rd3), twice, (%rd2);
	{ .param .b64 param0; .param .align 8 .b8 param1[16]; st.param.b64 [param0], %SP; st.param.b64 [param1], %rd2; st.param.v2.b32 [param1+8], {%r1, 0};
	  call.uni squares, (param0, param1); }
	ld.local.u64 %rd4, [%SPL]; ld.u64 %rd5, [%SP+8];
	mov.u32 %r3, %tid.x; mad.wide.u32 %rd6, %r3, 24, %rd1;
	st.global.u64 [%rd6], %rd3; st.global.v2.u64 [%rd1+128], {%rd4, %rd5}; st.global.u64 [%rd6+8], %rd4; st.global.u64 [%rd6+16], %rd5;
	ret; }";
    let mut device = Device::new(1024);
    run(launch(&module(text), "calls", 1, 4, &[BASE]), &mut device).unwrap();
    let found: Vec<u32> = device.words(BASE, 24).into_iter().step_by(2).collect();
    let factorials: [u32; 4] = [6, 24, 120, 720];
    let expected: Vec<u32> = (0..4)
        .flat_map(|at| {
            [
                2 * factorials[at],
                factorials[at].pow(2),
                (at as u32 + 3).pow(2),
            ]
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn functions_are_called_by_address_and_branches_by_number() {
    let text = "
.func (.param .b32 r) one(.param .b32 n) { .reg .b32 %r<2>; ld.param.u32 %r1, [n]; add.u32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }
.func (.param .b32 r) two(.param .b32 n) { .reg .b32 %r<2>; ld.param.u32 %r1, [n]; add.u32 %r1, %r1, 2; st.param.b32 [r], %r1; ret; }
.visible .entry pick(.param .u64 out) {
	.reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>;
	ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p, %r2, 0;
	mov.u64 %rd2, one; @!%p mov.u64 %rd2, two;
	{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1;
	  prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
	  call (r0), %rd2, (p0), prototype_0; ld.param.b32 %r3, [r0]; }
	targets: .branchtargets $A, $B, $C;
	brx.idx %r1, targets;
$A: add.u32 %r3, %r3, 100; bra $END;
$B: add.u32 %r3, %r3, 200; bra $END;
$C: add.u32 %r3, %r3, 300;
$END: mad.wide.u32 %rd3, %r1, 4, %rd1; st.global.u32 [%rd3], %r3; ret; }";
    let mut device = Device::new(64);
    run(launch(&module(text), "pick", 1, 3, &[BASE]), &mut device).unwrap();
    assert_eq!(device.words(BASE, 3), [101, 203, 303]);
}
