//! Kernels that end early: illegal and misaligned addresses, traps, calls of nothing, endless
//! calls.

use softgpu_ptx::{Fault, Module, TrapKind};
use std::sync::Arc;

use crate::common::{BASE, Device, HEAD, launch, module, run};

/// How a kernel ends, and on which line, with a pointer to 64 bytes in `%rd1`.
fn end(body: &str) -> (TrapKind, u32) {
    let text = format!(
        ".visible .entry one(.param .u64 out) {{\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 4 .b8 s[16]; .local .align 4 .b8 l[16];\n\
         ld.param.u64 %rd1, [out];\n{body}\nret; }}"
    );
    let trap = run(
        launch(&module(&text), "one", 1, 1, &[BASE]),
        &mut Device::new(64),
    )
    .unwrap_err();
    assert_eq!((trap.function.as_str(), trap.thread), ("one", [0; 3]));
    (trap.kind, trap.line)
}

#[test]
fn accesses_beyond_memory_are_illegal() {
    use Fault::{Illegal, Misaligned};
    let global = |fault, at| (TrapKind::Global(fault, at), 7);
    assert_eq!(
        end("ld.global.u32 %r1, [%rd1+64];"),
        global(Illegal, BASE + 64)
    );
    assert_eq!(
        end("st.global.u64 [%rd1+60], 1;").0,
        TrapKind::Global(Misaligned, BASE + 60)
    );
    assert_eq!(end("ld.u32 %r1, [0];"), global(Illegal, 0));
    assert_eq!(
        end("atom.add.u32 %r1, [%rd1+64], 1;"),
        global(Illegal, BASE + 64)
    );
    assert_eq!(
        end("atom.add.u32 %r1, [%rd1+2], 1;"),
        global(Misaligned, BASE + 2)
    );
    assert_eq!(
        end("ld.global.v4.f32 {%r1, %r2, %r3, %r4}, [%rd1+8];"),
        global(Misaligned, BASE + 8)
    );
    let inside = |fault, at| (TrapKind::Inside(fault, at), 7);
    assert_eq!(end("ld.shared.u32 %r1, [s+16];"), inside(Illegal, 16));
    assert_eq!(end("st.local.u32 [l+18], 1;"), inside(Misaligned, 18));
    assert_eq!(
        end("cvta.shared.u64 %rd2, s; st.u8 [%rd2+16], 1;"),
        inside(Illegal, 16)
    );
    assert_eq!(
        end("mov.u64 %rd2, l; cvta.local.u64 %rd2, %rd2; ld.u8 %r1, [%rd2+-1];").0,
        TrapKind::Global(Illegal, (2 << 56) - 1).min_inside()
    );
}

trait MinInside {
    fn min_inside(self) -> TrapKind;
}

impl MinInside for TrapKind {
    /// One byte before local memory is the last byte of the window of shared memory.
    fn min_inside(self) -> TrapKind {
        match self {
            Self::Global(fault, at) => Self::Inside(fault, at & ((1 << 56) - 1)),
            other => other,
        }
    }
}

#[test]
fn generic_addresses_name_the_space_they_are_in() {
    let text = ".visible .entry one(.param .u64 out) {\n.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 4 .b8 s[16]; .local .align 4 .b8 l[16];
	ld.param.u64 %rd1, [out]; cvta.shared.u64 %rd2, s; mov.u64 %rd3, l; cvta.local.u64 %rd3, %rd3;
	isspacep.shared %p1, %rd2; isspacep.global %p2, %rd2; isspacep.local %p3, %rd3; isspacep.global %p4, %rd1;
	selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; selp.u32 %r4, 1, 0, %p4;
	st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
	st.u32 [%rd2+4], 5; ld.shared.u32 %r5, [s+4]; st.local.u32 [l], 6; ld.u32 %r6, [%rd3]; cvta.to.shared.u64 %rd4, %rd2; ld.shared.u32 %r7, [%rd4+4];
	st.global.v2.u32 [%rd1+16], {%r5, %r6}; st.global.u32 [%rd1+24], %r7; ret; }";
    let mut device = Device::new(64);
    run(launch(&module(text), "one", 1, 1, &[BASE]), &mut device).unwrap();
    assert_eq!(device.words(BASE, 7), [1, 0, 1, 1, 5, 6, 5]);
}

#[test]
fn traps_and_endless_calls_end_the_kernel() {
    assert_eq!(end("trap;"), (TrapKind::Trap, 7));
    let text = ".func again() { call again; ret; }\n.visible .entry one() { call again; ret; }";
    let trap = run(launch(&module(text), "one", 1, 1, &[]), &mut Device::new(1)).unwrap_err();
    assert_eq!(
        (trap.kind, trap.function.as_str()),
        (TrapKind::Stack, "again")
    );
    let text = ".visible .entry one() { .reg .b64 %rd<2>; mov.u64 %rd1, 99; p: .callprototype () _ (); call %rd1, (), p; ret; }";
    let trap = run(launch(&module(text), "one", 1, 1, &[]), &mut Device::new(1)).unwrap_err();
    assert_eq!(trap.kind, TrapKind::NoFunction(99));
}

#[test]
fn system_calls_fail_by_name_where_they_are_reached() {
    let text = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n.extern .func __assertfail(.param .b64 m);\n\
        .visible .entry one(.param .u64 which) { .reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %rd<2>;\n\
        ld.param.u32 %r1, [which]; setp.eq.u32 %p1, %r1, 0; @%p1 bra $END; setp.eq.u32 %p1, %r1, 1; @%p1 bra $ASSERT;\n\
        { .param .b64 p0; .param .b64 p1; .param .b32 r0; st.param.b64 [p0], 0; st.param.b64 [p1], 0; call.uni (r0), vprintf, (p0, p1); }\n\
        $ASSERT: { .param .b64 p0; st.param.b64 [p0], 0; call.uni __assertfail, (p0); }\n$END: ret; }";
    let one = |which| {
        run(
            launch(&module(text), "one", 1, 1, &[which]),
            &mut Device::new(1),
        )
        .map_err(|trap| trap.kind)
    };
    assert!(one(0).is_ok());
    assert_eq!(one(1), Err(TrapKind::Assertion));
    assert_eq!(one(2), Err(TrapKind::Missing("vprintf".to_owned())));
}

#[test]
fn an_unknown_instruction_is_named_with_its_line_and_only_in_its_kernel() {
    let text = format!(
        "{HEAD}.func helper() {{\n  wmma.sync.frobnicate.f32 {{%r1}}, [%rd1];\n  ret; }}\n\
         .visible .entry bad() {{ call helper; ret; }}\n.visible .entry good() {{ ret; }}\n\
         .visible .entry odd() {{ .reg .b32 %r<2>; add.strange.u32 %r1, %r1, %r1; tex.2d.v4.f32.f32 {{%r1,%r1,%r1,%r1}}, [t, {{%r1, %r1}}]; ret; }}"
    );
    let module = Arc::new(Module::parse(&text).unwrap());
    let unknown = module.kernel("bad").unwrap().unknown();
    assert_eq!(
        unknown,
        [(5, "`wmma.sync.frobnicate.f32` is not known".to_owned())]
    );
    assert_eq!(module.kernel("good").unwrap().unknown(), []);
    let odd = module.kernel("odd").unwrap().unknown();
    assert_eq!(
        odd[0],
        (
            9,
            "`add.strange.u32` has `.strange`, which is not known".to_owned()
        )
    );
    assert_eq!(odd[1], (9, "`tex.2d.v4.f32.f32` is not known".to_owned()));
    let trap = run(launch(&module, "bad", 1, 1, &[]), &mut Device::new(1)).unwrap_err();
    assert_eq!(
        trap.kind,
        TrapKind::Unknown("`wmma.sync.frobnicate.f32` is not known".to_owned())
    );
}
