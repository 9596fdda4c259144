//! Processes that use every kind of memory and are killed at random leave no memory behind.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use softgpu::inspect::Observer;
use softgpu::spec::Spec;

use super::support;

/// The number of processes at a time.
const AT_ONCE: usize = 3;
/// Processes killed in all.
const KILLED: usize = 6;

/// Starts a client that works until it is killed or has finished, and prints a byte for every step.
fn start(spec: &str) -> Child {
    Command::new(support::client("threads"))
        .arg("watched")
        .env("LD_LIBRARY_PATH", support::library())
        .env("SOFTGPU", spec)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the client starts")
}

/// Waits for `steps` steps, so that the kill comes at an arbitrary point of the work.
fn let_work(child: &mut Child, steps: usize) {
    let output = child.stdout.as_mut().expect("it is piped");
    output
        .read_exact(&mut vec![0; steps])
        .expect("the client makes more steps");
}

#[test]
fn killed_processes_leave_nothing_behind() {
    let spec = format!("mem=1GiB,name=kills-{}", std::process::id());
    let observer = Observer::open(&spec.parse::<Spec>().unwrap()).unwrap();
    let mut children: Vec<Child> = (0..AT_ONCE).map(|_| start(&spec)).collect();
    for n in 0..KILLED {
        let mut child = children.remove(0);
        let_work(&mut child, 1 + n * 137 % 701);
        let _ = child.kill();
        child.wait().unwrap();
        if n + AT_ONCE < KILLED {
            children.push(start(&spec));
        }
    }
    for _ in 0..64 {
        observer.step().unwrap();
    }
    let device = observer.snapshot().unwrap().devices.remove(0);
    assert_eq!(
        (device.used_physical, device.late, device.requested_now),
        (0, 0, 0)
    );
    assert!(device.requested_peak > 0, "no client has allocated");
    assert!(device.used_peak <= device.capacity);
}
