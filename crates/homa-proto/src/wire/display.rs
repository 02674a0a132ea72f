//! Prints packets on one line, in the style of tcpdump.

use std::fmt;

use super::packet::{Ack, Body, Packet, UnknownReason};

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.client_id, self.server_port)
    }
}

/// Prints `source > destination: TYPE id N`, then the fields of the type, and the incarnation if there is
/// one. Ranges exclude their end.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}: {}", self.common.source_port, self.common.dest_port, self.without_ports())
    }
}

impl Packet {
    /// Prints the packet without its ports, for tools that print the ports together with the hosts.
    pub fn without_ports(&self) -> impl fmt::Display + '_ {
        WithoutPorts(self)
    }
}

struct WithoutPorts<'a>(&'a Packet);

impl fmt::Display for WithoutPorts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { common, body: says, payload_len } = self.0;
        write!(f, "{} id {}", says.packet_type(), common.sender_id)?;
        body(says, *payload_len, f)?;
        if !common.incarnation.is_none() {
            write!(f, " incarnation {}", common.incarnation)?;
        }
        Ok(())
    }
}

fn body(body: &Body, payload_len: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match body {
        Body::Data(data) => {
            let end = u64::from(data.offset) + u64::from(payload_len);
            write!(f, " [{}, {end}) of {}", data.offset, data.message_length)?;
            write!(f, " incoming {} cv {}", data.incoming, data.cutoff_version)?;
            if let Some(ack) = data.ack {
                write!(f, " ack {ack}")?;
            }
            if data.retransmit {
                f.write_str(" retransmit")?;
            }
            data.response_limit.map_or(Ok(()), |limit| write!(f, " response limit {limit}"))
        }
        Body::Grant(grant) => write!(f, " to {} priority {}", grant.offset, grant.priority),
        Body::Resend(resend) => {
            match resend.length {
                Some(length) => {
                    write!(f, " [{}, {})", resend.offset, u64::from(resend.offset) + u64::from(length))?;
                }
                None => write!(f, " [{}, sent)", resend.offset)?,
            }
            write!(f, " priority {}", resend.priority)
        }
        Body::RpcUnknown(UnknownReason::Unknown) | Body::Busy | Body::Freeze | Body::NeedAck => Ok(()),
        Body::RpcUnknown(reason) => write!(f, " ({reason})"),
        Body::Cutoffs(cutoffs) => {
            write!(f, " cv {}:", cutoffs.version)?;
            cutoffs.cutoffs.iter().try_for_each(|cutoff| write!(f, " {cutoff}"))?;
            cutoffs.unsched_limit.map_or(Ok(()), |limit| write!(f, " limit {limit}"))
        }
        Body::Ack(acks) => acks.iter().try_for_each(|ack| write!(f, " {ack}")),
        Body::Start(start) => write!(f, " of {}", start.message_length),
    }
}
