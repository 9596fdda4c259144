//! The daemon's parts around its brain, one module a subject. A new file is a line here.

#[path = "support/binary.rs"]
mod binary;
#[path = "support/container_node.rs"]
mod container_node;
#[path = "support/driver.rs"]
mod driver;
mod support;

mod awaited;
mod caps_paid;
mod changes;
mod changes_lent;
mod changes_queued;
mod collisions;
mod containers;
mod containers_classes;
mod containers_devices;
mod containers_gangs;
mod containers_priority;
mod containers_refused;
mod containers_restarts;
mod containers_rules;
mod containers_unlimited;
mod containers_users;
mod counts;
mod defaults;
mod doors;
mod ended;
mod excess;
mod failing_looks;
mod fence_orders;
mod fences;
mod file_sizes;
mod further;
mod host_memory;
mod hostile;
mod instances;
mod joining;
mod kept_asks;
mod late;
mod listing;
mod lost_device;
mod maxima;
mod memory;
mod metrics;
mod moves;
mod mps;
mod no_start;
mod notify;
mod registrations;
mod reload;
mod restart;
mod sharing;
mod stopped;
mod storing;
mod totals;
mod turns;
mod unmanaged;
mod unread_log;
mod unrestored;
mod users;
mod versions;
mod words;
