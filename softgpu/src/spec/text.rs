//! SPEC as text.

use std::fmt;

use super::Spec;

/// The canonical text: every key in a fixed order, sizes in bytes. Two SPECs describe the same
/// machine exactly if their texts are equal.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "name={name},")?;
        }
        let Self {
            name: _,
            count,
            mem,
            sm,
            driver,
            link,
            bw,
            ctx,
            seed,
            linger,
            slice,
            switch,
            preempt,
            launch,
            load,
            inst,
            watchdog,
            stamp,
            room,
            upload,
            stage,
            free,
            vmm,
            managed,
            home,
            listed,
            reserved,
            sessions,
            fault,
            duplex,
            peer,
            pin,
            decompress,
            vmmcall,
            order,
            exit,
            reuse,
        } = self;
        let [vmm, decompress, sessions, peer] =
            [*vmm, *decompress, *sessions, *peer].map(|has| if has { "on" } else { "off" });
        write!(
            f,
            "count={count},mem={mem},sm={sm},driver={driver},link={link}/s,bw={bw}/s,ctx={ctx},seed={seed},\
            linger={linger},slice={slice}ns,switch={switch}ns,preempt={preempt}ns,launch={launch}ns,load={load}ns,inst={inst}ns,watchdog={watchdog},stamp={stamp},room={room},upload={upload},stage={stage},free={free},vmm={vmm},\
            managed={managed},home={home},listed={listed},reserved={reserved},sessions={sessions},fault={fault}ns,duplex={duplex},peer={peer},pin={pin}/s,decompress={decompress},vmmcall={vmmcall}ns,order={order},exit={exit},reuse={reuse}"
        )
    }
}
