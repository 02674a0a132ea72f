//! Packets in one line, in the manner of tcpdump.

use std::fmt;

use super::{Ack, Body, Packet, UnknownReason};

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.client_id, self.server_port)
    }
}

/// `source > destination: TYPE id N`, then what the type says; ranges exclude their end. The incarnation
/// comes last, when there is one.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = &self.common;
        let kind = self.body.packet_type();
        write!(f, "{} > {}: {kind} id {}", common.source_port, common.dest_port, common.sender_id)?;
        body(&self.body, self.payload_len, f)?;
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
    }
}
