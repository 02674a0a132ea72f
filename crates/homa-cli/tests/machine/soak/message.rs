//! Requests and responses whose bytes identify their call.

use std::sync::LazyLock;

use bytes::Bytes;
use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// Maximum length of a request or response in bytes.
pub const LARGEST: usize = 500_000;

/// Length of the header before a request's content: [`MAGIC`], stream, number, response length. Shorter
/// requests have no header. The server echoes them, since attackers send such requests too.
pub const HEADER: usize = 16;

const MAGIC: u32 = 0x50a4_50a4;

/// Random bytes. The contents of messages are slices of them, so a message is checked by a single comparison.
static BLOCK: LazyLock<Bytes> = LazyLock::new(|| {
    let mut bytes = vec![0; LARGEST + (1 << 20)];
    Pcg64::seed_from_u64(146).fill_bytes(&mut bytes);
    bytes.into()
});

/// The ID of a call, unique among all clients of a soak test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub stream: u32,
    pub number: u32,
}

#[derive(Clone, Copy)]
enum Side {
    Request,
    Response,
}

fn content(id: CallId, side: Side, length: usize) -> Bytes {
    let mixed = (u64::from(id.stream) << 33 | u64::from(id.number) << 1 | side as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let begin = (mixed >> 44) as usize;
    BLOCK.slice(begin..begin + length)
}

pub fn request(id: CallId, length: usize, response_length: usize) -> Bytes {
    let Some(rest) = length.checked_sub(HEADER) else { return content(id, Side::Request, length) };
    let words = [MAGIC, id.stream, id.number, response_length as u32];
    [&words.map(u32::to_be_bytes).concat()[..], &content(id, Side::Request, rest)].concat().into()
}

/// Returns the response that the request of this call must get.
pub fn response(id: CallId, request: &Bytes, length: usize) -> Bytes {
    if request.len() < HEADER { request.clone() } else { content(id, Side::Response, length) }
}

/// A request as decoded by the server.
pub struct ParsedRequest {
    pub id: CallId,
    pub response_length: usize,
    /// Whether the content is what this call's request contains.
    pub right: bool,
}

/// Parses a request. Returns `None` for requests without a header.
pub fn parse(request: &[u8]) -> Option<ParsedRequest> {
    let header: &[u8; HEADER] = request.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if word(0) != MAGIC {
        return None;
    }
    let id = CallId { stream: word(4), number: word(8) };
    let response_length = word(12) as usize;
    let right = response_length <= LARGEST
        && request.len() <= LARGEST
        && request[HEADER..] == content(id, Side::Request, request.len() - HEADER);
    Some(ParsedRequest { id, response_length: response_length.min(LARGEST), right })
}

#[test]
fn a_request_shows_its_call_and_whether_a_byte_changed() {
    let id = CallId { stream: 3, number: 70_000 };
    let mut bytes = request(id, 20_000, 7).to_vec();
    let parsed = parse(&bytes).expect("a header");
    assert_eq!((parsed.id, parsed.response_length, parsed.right), (id, 7, true));
    bytes[19_999] ^= 1;
    assert!(!parse(&bytes).expect("a header").right);
    assert!(parse(&request(id, HEADER - 1, 7)).is_none());
    let other = CallId { stream: 4, ..id };
    assert_ne!(response(id, &request(id, 100, 100), 100), response(other, &request(other, 100, 100), 100));
}
