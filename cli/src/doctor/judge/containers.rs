//! The check of gpushare's ways into containers.

use super::super::facts::{Engine, HookFile, Runtime};
use super::{Facts, Judged, Verdict, fail, ok, warn};
use gpushare_protocol::injection::RELABEL;
use std::path::PathBuf;

pub(super) fn containers(facts: &Facts) -> Judged {
    if facts.engines.is_empty() {
        return ok("no container engine");
    }
    let engines = facts.engines.iter().map(|engine| judged(engine, facts));
    let rules = rules(facts).into_iter();
    let labels = labels(facts).into_iter();
    let all: Vec<Judged> = engines
        .chain(rules)
        .chain(labels)
        .chain([gpus(facts)])
        .collect();
    let verdict = all.iter().map(|one| one.0).max().unwrap_or(Verdict::Ok);
    let advice = all.iter().find(|one| one.0 == verdict);
    let advice = advice.and_then(|one| one.2.clone());
    let found: Vec<String> = all.into_iter().map(|one| one.1).collect();
    (verdict, found.join("; "), advice)
}

/// How its containers get limits, or why they do not.
fn judged(engine: &Engine, facts: &Facts) -> Judged {
    let name = engine.name;
    if let Some(wrong) = &engine.wrong {
        return warn(format!("{name}: {wrong}"), "correct that file");
    }
    if let Some((way, path, then)) = missing(engine) {
        return fail(
            format!("{name}: {way} is {}, which is not there", path.display()),
            format!("install gpushare there, or correct the path: its containers {then}"),
        );
    }
    if let Some(found) = annotated(engine).or_else(|| annotated_by_pods(engine)) {
        return found;
    }
    let deaf = |runtime: &&Runtime| runtime.passes == Some(false);
    if let Some(runtime) = engine.runtimes.iter().find(deaf) {
        let template = match name {
            "k3s" | "rke2" => " in its template or drop-in (CONTAINERS, containerd and Kubernetes)",
            _ => "",
        };
        return warn(
            format!(
                "{name}: runtime {} is given no annotation of a pod: its limits never arrive",
                runtime.name
            ),
            format!(
                "add pod_annotations = [\"gpushare.io/*\"] to it{template}, and restart {name}"
            ),
        );
    }
    if let Some(file) = &engine.replacing {
        let file = file.display();
        let dump = match name {
            "containerd" => "; `containerd config dump` shows what counts",
            _ => "",
        };
        return warn(
            format!(
                "{name}: {file} has a section of [plugins] again: containerd 1.x takes it alone, containerd 2 adds it up, and gpushare's runtimes differ"
            ),
            format!("put gpushare's sections into {file} and restart {name}{dump}"),
        );
    }
    let gives_none = |runtime: &&Runtime| !runtime.has_nvidia && by_cri(engine);
    let bare = engine.runtimes.iter().find(gives_none);
    if let Some(runtime) = bare.filter(|_| facts.cdi.is_empty() && !facts.pods_cdi) {
        return warn(
            format!(
                "{name}: runtime {} does not come to NVIDIA's, and no CDI description of the GPUs is there: its pods get none",
                runtime.name
            ),
            "have it call NVIDIA's runtime by a script, or give GPUs by CDI (CONTAINERS, The GPU itself)",
        );
    }
    let has_none = engine.runtimes.is_empty() && engine.hooks.is_empty();
    if let Some(path) = engine.unread.as_ref().filter(|_| has_none) {
        return ok(format!(
            "{name} ({} is root's to read: look as root)",
            path.display()
        ));
    }
    if has_none && has_hooks(engine) && !facts.classes {
        return warn(
            format!(
                "{name}: {}: annotations have no effect",
                without_hook(&engine.hook_folders)
            ),
            "link PREFIX/share/containers/oci/hooks.d/gpushare.json there",
        );
    }
    let going_past = || going_past(engine, facts);
    if let Some(found) = facts.mandatory.then(going_past).flatten() {
        return found;
    }
    let way = match (engine.runtimes.first(), engine.hooks.first()) {
        (Some(runtime), _) => format!("{name}: runtime {}", runtime.name),
        (None, Some(hook)) => format!("{name}: {}", hook.file.display()),
        (None, None) if facts.classes => format!("{name}, by classes"),
        (None, None) => format!("{name}, without gpushare"),
    };
    ok(way)
}

/// How containers of it go past mandatory limits, if some do.
fn going_past(engine: &Engine, facts: &Facts) -> Option<Judged> {
    let name = engine.name;
    let has_cdi = !facts.cdi.is_empty() || facts.pods_cdi;
    if !asks_for_all(engine) {
        return Some(warn(
            format!("limits are mandatory, and containers of {name} that ask for nothing go past"),
            match (has_hooks(engine), has_cdi) {
                (true, _) => {
                    "give it a file of hooks for all containers, in a folder that it looks in (CONTAINERS, Limits that are mandatory)"
                }
                (false, true) => {
                    "make the wrapper its default runtime: CDI gives GPUs under any (CONTAINERS, Limits that are mandatory)"
                }
                (false, false) => {
                    "make the wrapper its default runtime, unless that gives no GPUs (CONTAINERS, Limits that are mandatory)"
                }
            },
        ));
    }
    if is_hooked(engine) {
        return None;
    }
    if let Some(runtime) = engine.past.first() {
        return Some(warn(
            format!(
                "limits are mandatory, and containers of {name}'s runtime {runtime} go past: it gives GPUs and does not come to gpushare"
            ),
            "have it call the wrapper, or remove it (CONTAINERS, Limits that are mandatory)",
        ));
    }
    if has_cdi && !engine.others.is_empty() {
        return Some(warn(
            format!(
                "limits are mandatory, and pods whose RuntimeClass names a handler of {name} ({}) go past: CDI gives GPUs under any",
                engine.others.join(", ")
            ),
            "have each call the wrapper, or remove it (CONTAINERS, Limits that are mandatory)",
        ));
    }
    if let Some(found) = made_past(engine) {
        return Some(warn(
            found,
            "make them anew: Docker starts each by the runtime that it was made with (CONTAINERS, Limits that are mandatory)",
        ));
    }
    if engine.builds_past && !facts.cdi.is_empty() {
        return Some(warn(
            "limits are mandatory, and image builds of docker go past: `RUN --device=nvidia.com/gpu=all` has the whole GPU",
            "in a drop-in of docker.service, [Service]: Environment=DOCKER_BUILDKIT_RUNC_COMMAND=/usr/bin/gpushare-runtime (CONTAINERS, Image builds)",
        ));
    }
    (name == "docker").then(|| {
        warn(
            "limits are mandatory, and `docker run --runtime runc` goes past",
            "Docker lets each client name runc: give its socket to nobody who is to be limited",
        )
    })
}

/// A runtime or a hook whose program is not there, and what its containers do then: Podman and
/// CRI-O pass over such a file of hooks without a word.
fn missing(engine: &Engine) -> Option<(String, &PathBuf, &'static str)> {
    let runtime = engine.runtimes.iter().find(|runtime| !runtime.runs);
    let runtime = runtime.map(|one| (format!("runtime {}", one.name), &one.path, "do not start"));
    let hook = || {
        let hook = engine.hooks.iter().find(|hook| !hook.runs)?;
        let way = format!("the hook of {}", hook.file.display());
        Some((way, &hook.path, "start without limits"))
    };
    runtime.or_else(hook)
}

/// Whether an image can select the hook, and have crun open a file of the machine for it. The
/// wrapper refuses such a container before crun sees it.
fn annotated(engine: &Engine) -> Option<Judged> {
    let version = engine.images_annotate.as_ref()?;
    let file = engine.hooks.first()?.file.display();
    (!is_wrapped(engine)).then(|| {
        warn(
            format!(
                "podman {version} takes annotations of images over: by {file} an image selects the hook, and has crun create or open any file of this machine"
            ),
            "update Podman to 4.5.1 or later, or make the wrapper its runtime and take that file away; until then run no stranger's image as root (CONTAINERS, What is a security boundary)",
        )
    })
}

/// Whether the author of a pod can do so. A file of hooks is for the containers of each handler.
fn annotated_by_pods(engine: &Engine) -> Option<Judged> {
    let handler = engine.pods_annotate.as_ref()?;
    let file = engine.hooks.first()?.file.display();
    Some(warn(
        format!(
            "cri-o hands all annotations of a pod to its runtime: by {file} the author of any pod selects the hook, and has its handler {handler} create or open any file of this machine"
        ),
        "name a hooks_dir without that file, and use the wrapper by a script in its place (CONTAINERS, CRI-O over crun)",
    ))
}

/// Its containers that a new default runtime does not reach, the first few by name.
fn made_past(engine: &Engine) -> Option<String> {
    const SHOWN: usize = 5;
    let all = &engine.made_past;
    let first = all.iter().take(SHOWN);
    let mut names: Vec<String> = first
        .map(|one| format!("{} ({})", one.name, one.runtime))
        .collect();
    if all.len() > SHOWN {
        names.push(format!("{} more", all.len() - SHOWN));
    }
    let names = names.join(", ");
    let name = engine.name;
    (!all.is_empty()).then(|| {
        format!(
            "limits are mandatory, and containers of {name} that were made with another runtime go past: {names}"
        )
    })
}

/// Whether it looks for hooks in folders.
fn has_hooks(engine: &Engine) -> bool {
    ["cri-o", "podman"].contains(&engine.name)
}

/// Whether Kubernetes starts its containers, and it gives no GPUs by itself.
fn by_cri(engine: &Engine) -> bool {
    ["containerd", "k3s", "rke2"].contains(&engine.name)
}

/// Whether a hook asks the daemon about each container, whatever its runtime is.
fn is_hooked(engine: &Engine) -> bool {
    engine.hooks.iter().any(|hook: &HookFile| hook.always)
}

/// Whether each container that names no runtime comes to the daemon.
fn asks_for_all(engine: &Engine) -> bool {
    is_wrapped(engine) || is_hooked(engine)
}

/// Whether the wrapper is its default runtime.
fn is_wrapped(engine: &Engine) -> bool {
    let mut names = engine.runtimes.iter().map(|runtime| Some(&runtime.name));
    names.any(|name| name == engine.default.as_ref())
}

/// Whether the rules for namespaces and images can fit. Docker and Podman write neither into a
/// container's annotations.
fn rules(facts: &Facts) -> Option<Judged> {
    let writes_none = |engine: &Engine| ["docker", "podman"].contains(&engine.name);
    let fits_none = facts.has_pod_rules && facts.engines.iter().all(writes_none);
    fits_none.then(|| {
        warn(
            "a rule of [containers] is for a namespace or an image, and no container of Docker or Podman has such a label: it fits none",
            "only `user` fits there; [maxima] hold for all (CONTAINERS)",
        )
    })
}

/// Whether containers that SELinux confines may read what is mounted into them.
fn labels(facts: &Facts) -> Option<Judged> {
    let named = facts.unread_by_containers.iter();
    let named: Vec<String> = named
        .map(|(path, kind)| format!("{} ({kind})", path.display()))
        .collect();
    (!named.is_empty()).then(|| {
        warn(
            format!(
                "containers that SELinux confines may not read {}: the hook refuses them, and those of a class have no limits",
                named.join(", ")
            ),
            RELABEL,
        )
    })
}

/// Whether containers can be given GPUs.
fn gpus(facts: &Facts) -> Judged {
    let has_nvidia = facts.engines.iter().any(|engine| engine.has_nvidia);
    match facts.cdi.first() {
        Some(folder) => ok(format!("CDI in {}", folder.display())),
        None if has_nvidia => ok("GPUs by NVIDIA's toolkit"),
        None if facts.engines.iter().any(|one| one.unread.is_some()) => {
            ok("how GPUs are given is root's to read")
        }
        None => warn(
            "no CDI description of the GPUs is there",
            "containers get GPUs by CDI: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        ),
    }
}

fn without_hook(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return "it looks for hooks in no folder (hooks_dir is empty)".to_owned();
    }
    let names = folders.iter().map(|one| one.display().to_string());
    let names: Vec<String> = names.collect();
    format!("no hook of gpushare's in {}", names.join(", "))
}
