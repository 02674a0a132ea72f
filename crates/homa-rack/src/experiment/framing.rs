//! Bytes of messages on the wire. The load of an experiment is a share of the link's rate, headers included.

use homa_bench::engine::load::Pace;
use homa_bench::protocol::Protocol;
use homa_bench::tcp::frame::HEADER_LEN;
use homa_proto::wire::DATA_HEADER_LEN;
use homa_workload::Workload;

use crate::spec::ETHERNET;

/// Bytes of the UDP and IPv4 headers, which count towards the MTU as Homa's header does.
const UDP_IP: u64 = 8 + 20;

/// Bytes of a response to a one-way request.
pub const ONE_WAY_ANSWER: u32 = 100;

/// Number of quantiles over which a distribution of sizes is summed.
const QUANTILES: u32 = 20_000;

/// Returns the bytes on the wire of a Homa message, in packets of this MTU.
pub fn wire_bytes(bytes: u32, mtu: u32) -> u64 {
    let payload = (u64::from(mtu) - UDP_IP - DATA_HEADER_LEN as u64).max(1);
    let packets = u64::from(bytes).div_ceil(payload).max(1);
    u64::from(bytes) + packets * (DATA_HEADER_LEN as u64 + UDP_IP + ETHERNET)
}

/// Returns the mean bytes on the wire of an RPC: its request on its client's uplink, and its response on its
/// server's uplink. If all hosts are both client and server, the sum is the load on each uplink and each
/// downlink, with one RPC per host.
pub fn rpc_wire_bytes(workload: &Workload, mtu: u32, one_way: bool) -> f64 {
    let sum: u64 = workload
        .quantiles(QUANTILES)
        .map(|request| {
            let answer = if one_way { ONE_WAY_ANSWER } else { request };
            wire_bytes(request, mtu) + wire_bytes(answer, mtu)
        })
        .sum();
    sum as f64 / f64::from(QUANTILES)
}

/// Returns the share of request bytes in the bytes of all requests and responses.
pub fn request_share(workload: &Workload, one_way: bool) -> f64 {
    let mean = workload.mean_bytes();
    let answer = if one_way { f64::from(ONE_WAY_ANSWER) } else { mean };
    mean / (mean + answer)
}

/// Bytes that TCP adds to each packet: its header with timestamps, and the IPv4 header. Ethernet is added
/// separately.
const TCP_IP: u64 = 32 + 20;

/// Returns the maximum request payload of each host in Gbit/s if links carry only data with the protocol's
/// headers, without grants and acknowledgements. TCP fills its packets across message boundaries, and each
/// message has a header in the stream.
pub fn header_limited_gbps(
    protocol: Protocol,
    rate_bps: u64,
    workload: &Workload,
    mtu: u32,
    one_way: bool,
) -> f64 {
    let mean = workload.mean_bytes();
    let wire_bytes = if protocol == Protocol::Tcp {
        let payload = (f64::from(mtu) - TCP_IP as f64).max(1.0);
        let answer = if one_way { f64::from(ONE_WAY_ANSWER) } else { mean };
        let stream = mean + answer + 2.0 * HEADER_LEN as f64;
        stream * (f64::from(mtu) + ETHERNET as f64) / payload
    } else {
        rpc_wire_bytes(workload, mtu, one_way)
    };
    rate_bps as f64 / 1e9 * mean / wire_bytes
}

/// Returns the request payload of each host in Gbit/s if all links carry this share of their rate.
pub fn gbps_of_load(load: f64, rate_bps: u64, workload: &Workload, mtu: u32, one_way: bool) -> f64 {
    load * rate_bps as f64 / 1e9 * workload.mean_bytes() / rpc_wire_bytes(workload, mtu, one_way)
}

/// Returns the pace of an open loop with this load in Gbit/s of request payload.
pub fn open(gbps: f64, max_outstanding: u32) -> Pace {
    Pace::Open { gbps, max_outstanding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_has_its_headers() {
        let one = 1 + 56 + 8 + 20 + 14 + 4 + 8 + 12;
        assert_eq!(wire_bytes(1, 1_500), one);
        assert_eq!(wire_bytes(1_416, 1_500), 1_538);
        assert_eq!(wire_bytes(1_417, 1_500), 1_538 + one);
    }

    #[test]
    fn each_protocol_is_limited_by_its_own_headers() {
        let workload = Workload::fixed(1_000_000).expect("a size");
        let of = |protocol| header_limited_gbps(protocol, 1_000_000_000, &workload, 1_500, false);
        let homa = 0.5 * 1e6 / (1e6 + 707.0 * (56.0 + 28.0 + 38.0));
        assert!((of(Protocol::Homa) - homa).abs() < 1e-9, "{}", of(Protocol::Homa));
        let tcp = 0.5 * 1_448.0 / 1_538.0;
        assert!((of(Protocol::Tcp) - tcp).abs() < 1e-4 && of(Protocol::Tcp) < tcp, "{}", of(Protocol::Tcp));
    }

    #[test]
    fn a_full_load_of_full_packets_fills_both_directions() {
        let workload = Workload::fixed(1_416).expect("a size");
        assert_eq!(rpc_wire_bytes(&workload, 1_500, false), 2.0 * 1_538.0);
        let gbps = gbps_of_load(1.0, 1_000_000_000, &workload, 1_500, false);
        assert!((gbps - 0.5 * 1_416.0 / 1_538.0).abs() < 1e-9, "{gbps}");
        let one_way = gbps_of_load(1.0, 1_000_000_000, &workload, 1_500, true);
        assert!((one_way - 1_416.0 / (1_538.0 + 222.0)).abs() < 1e-9, "{one_way}");
    }

    #[test]
    fn requests_have_half_of_the_bytes_or_nearly_all() {
        let workload = Workload::fixed(9_900).unwrap();
        assert_eq!(request_share(&workload, false), 0.5);
        assert_eq!(request_share(&workload, true), 0.99);
    }
}
