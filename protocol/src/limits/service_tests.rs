//! Variables that Kubernetes makes from the names of services.

use super::*;

#[test]
fn variables_of_a_kubernetes_service_mean_nothing() {
    for name in [
        "GPUSHARE_EXPORTER_SERVICE_HOST",
        "GPUSHARE_EXPORTER_SERVICE_PORT",
        "GPUSHARE_EXPORTER_SERVICE_PORT_METRICS",
        "GPUSHARE_EXPORTER_PORT",
        "GPUSHARE_EXPORTER_PORT_9400_TCP",
        "GPUSHARE_MEM_PORT_9400_TCP_PROTO",
        "GPUSHARE_EXPORTER_PORT_9400_UDP_ADDR",
    ] {
        assert_eq!(Limits::asks(name, "10.0.0.1"), Ok(false), "{name}");
        assert!(Limits::from_env([(name.into(), "10.0.0.1".into())]).is_ok());
    }
    for name in [
        "GPUSHARE_EXPORTER_HOST",
        "GPUSHARE_EXPORTER_PORTS",
        "GPUSHARE_EXPORTER_PORT_X_TCP",
        "GPUSHARE_MEM_LIMIT_PORT_9400_TCP_NAME",
    ] {
        assert!(Limits::asks(name, "10.0.0.1").is_err(), "{name}");
    }
}
