//! User objects: which graphs keep them, and when and where their destructors run.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::graphs::*;
use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

/// What the object of [`asks`] was told by the driver.
static TOLD: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn notes(word: *mut c_void) {
    put(word.cast(), 1);
}

unsafe extern "C" fn asks(word: *mut c_void) {
    let mut graph = CUgraph::NULL;
    TOLD.store(cuGraphCreate(&raw mut graph, 0).0, Ordering::SeqCst);
    put(word.cast(), 1);
}

/// An object with one reference, and the word that its destructor sets.
fn object(destructor: CUhostFn) -> (CUuserObject, *mut u32) {
    let word = pinned(1);
    let object = get(CUuserObject::NULL, |out| {
        cuUserObjectCreate(out, word.cast(), destructor, 1, 1)
    });
    (object, word)
}

/// A graph that has the only reference to an object, and the word that its destructor sets.
fn graph_with_object() -> (CUgraph, *mut u32) {
    let (graph, (object, word)) = (graph(), object(Some(notes)));
    let moves = CUuserObjectRetain_flags::MOVE.0;
    assert_eq!(cuGraphRetainUserObject(graph, object, 1, moves), OK);
    (graph, word)
}

fn await_end(word: *const u32) {
    while look(word) == 0 {
        std::thread::yield_now();
    }
}

/// Whether the object lives once the destructors of all that ended before have run.
fn lives(word: *const u32) -> bool {
    let (last, end) = object(Some(notes));
    assert_eq!(cuUserObjectRelease(last, 1), OK);
    await_end(end);
    look(word) == 0
}

#[test]
fn an_executable_graph_keeps_the_user_objects_of_its_graph() {
    let name = "an_executable_graph_keeps_the_user_objects_of_its_graph";
    alone(name, "", || {
        start();
        let (graph, word) = graph_with_object();
        let (parent, child_word) = (graph_with_object().0, word);
        get(CUgraphNode::NULL, |out| {
            cuGraphAddChildGraphNode(out, parent, null_mut(), 0, graph)
        });
        let exec = instance(parent, 0);
        assert_eq!(cuGraphDestroy(graph), OK);
        assert_eq!(cuGraphDestroy(parent), OK);
        assert!(lives(child_word));
        assert_eq!(cuGraphExecDestroy(exec), OK);
        await_end(child_word);
    });
}

#[test]
fn a_launch_keeps_user_objects_until_its_work_has_ended() {
    let name = "a_launch_keeps_user_objects_until_its_work_has_ended";
    alone(name, "", || {
        start();
        let ((graph, word), stream) = (graph_with_object(), free_stream());
        let exec = instance(graph, 0);
        let gate = Gate::close(stream);
        assert_eq!(cuGraphLaunch(exec, stream), OK);
        assert_eq!(cuGraphDestroy(graph), OK);
        assert_eq!(cuGraphExecDestroy(exec), OK);
        assert!(lives(word));
        gate.open();
        assert_eq!(cuStreamSynchronize(stream), OK);
        await_end(word);
    });
}

#[test]
fn a_clone_keeps_the_user_objects_of_its_original() {
    let name = "a_clone_keeps_the_user_objects_of_its_original";
    alone(name, "", || {
        start();
        let (graph, word) = graph_with_object();
        let clone = get(CUgraph::NULL, |out| cuGraphClone(out, graph));
        assert_eq!(cuGraphDestroy(graph), OK);
        assert!(lives(word));
        assert_eq!(cuGraphDestroy(clone), OK);
        await_end(word);
    });
}

#[test]
fn an_update_replaces_the_user_objects_of_an_executable_graph() {
    let name = "an_update_replaces_the_user_objects_of_an_executable_graph";
    alone(name, "", || {
        start();
        let ((old, old_word), (new, new_word)) = (graph_with_object(), graph_with_object());
        let exec = instance(old, 0);
        assert_eq!(cuGraphDestroy(old), OK);
        assert_eq!(updated(exec, new), CUgraphExecUpdateResult::SUCCESS);
        await_end(old_word);
        assert_eq!(cuGraphDestroy(new), OK);
        assert!(lives(new_word));
        assert_eq!(cuGraphExecDestroy(exec), OK);
        await_end(new_word);
    });
}

#[test]
fn an_update_waits_with_old_user_objects_for_launches() {
    let name = "an_update_waits_with_old_user_objects_for_launches";
    alone(name, "", || {
        start();
        let ((old, old_word), (new, _)) = (graph_with_object(), graph_with_object());
        let (exec, stream) = (instance(old, 0), free_stream());
        assert_eq!(cuGraphDestroy(old), OK);
        let gate = Gate::close(stream);
        assert_eq!(cuGraphLaunch(exec, stream), OK);
        assert_eq!(updated(exec, new), CUgraphExecUpdateResult::SUCCESS);
        assert!(lives(old_word));
        gate.open();
        assert_eq!(cuStreamSynchronize(stream), OK);
        await_end(old_word);
    });
}

#[test]
fn a_destructor_is_refused_calls_and_runs_in_a_thread_of_the_driver() {
    let name = "a_destructor_is_refused_calls_and_runs_in_a_thread_of_the_driver";
    alone(name, "", || {
        start();
        let (graph, (object, word)) = (graph(), object(Some(asks)));
        let moves = CUuserObjectRetain_flags::MOVE.0;
        assert_eq!(cuGraphRetainUserObject(graph, object, 1, moves), OK);
        assert_eq!(cuGraphDestroy(graph), OK);
        await_end(word);
        let told = CUresult(TOLD.load(Ordering::SeqCst));
        assert_eq!(told, CUresult::NOT_PERMITTED);
    });
}

#[test]
fn references_are_counted_from_one_to_the_largest_int() {
    let name = "references_are_counted_from_one_to_the_largest_int";
    alone(name, "", || {
        start();
        let (graph, (object, word)) = (graph(), object(Some(notes)));
        let largest = u32::try_from(i32::MAX).unwrap();
        for count in [0, largest + 1] {
            let refused = [
                cuUserObjectRetain(object, count),
                cuUserObjectRelease(object, count),
                cuGraphRetainUserObject(graph, object, count, 0),
                cuGraphReleaseUserObject(graph, object, count),
            ];
            assert_eq!(refused, [CUresult::INVALID_VALUE; 4], "{count}");
        }
        assert_eq!(cuUserObjectRetain(object, largest), OK);
        assert_eq!(cuUserObjectRelease(object, largest), OK);
        assert!(lives(word));
    });
}
