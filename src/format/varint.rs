//! Zig-zag variable-length integers of magic 2 records (format page, "varint").

/// A 32-bit varint at the start of `data`: its value and its length in bytes. `None` where the
/// bytes end first or go on beyond five.
#[inline]
pub fn read_varint(data: &[u8]) -> Option<(i32, usize)> {
    match *data {
        [a, ..] if a < 0x80 => Some((zig_zag_32(u32::from(a)), 1)),
        [a, b, ..] if b < 0x80 => Some((zig_zag_32(u32::from(a & 0x7f) | u32::from(b) << 7), 2)),
        _ => {
            let (raw, length) = read_groups(data, 5)?;
            // Kafka drops what a fifth byte holds beyond 32 bits.
            let low = u32::try_from(raw & u64::from(u32::MAX)).ok()?;
            Some((zig_zag_32(low), length))
        }
    }
}

/// A 64-bit varint at the start of `data`: its value and its length in bytes. `None` where the
/// bytes end first or go on beyond ten.
#[inline]
pub fn read_varlong(data: &[u8]) -> Option<(i64, usize)> {
    match *data {
        [a, ..] if a < 0x80 => Some((zig_zag_64(u64::from(a)), 1)),
        [a, b, ..] if b < 0x80 => Some((zig_zag_64(u64::from(a & 0x7f) | u64::from(b) << 7), 2)),
        _ => read_groups(data, 10).map(|(raw, length)| (zig_zag_64(raw), length)),
    }
}

fn read_groups(data: &[u8], longest: usize) -> Option<(u64, usize)> {
    let mut raw = 0u64;
    for (place, &byte) in data.iter().take(longest).enumerate() {
        raw |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some((raw, place + 1));
        }
    }
    None
}

#[inline]
fn zig_zag_32(raw: u32) -> i32 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

#[inline]
fn zig_zag_64(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kafka-behaviours row 1 (`ByteUtilsTest.testVarintSerde`).
    #[test]
    fn the_table_of_kafkas_test_reads_back() {
        let rows: [(i32, &[u8]); 16] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (-65, &[0x81, 1]),
            (8191, &[0xfe, 0x7f]),
            (-8192, &[0xff, 0x7f]),
            (8192, &[0x80, 0x80, 1]),
            (-8193, &[0x81, 0x80, 1]),
            (1_048_575, &[0xfe, 0xff, 0x7f]),
            (1_048_576, &[0x80, 0x80, 0x80, 1]),
            (134_217_728, &[0x80, 0x80, 0x80, 0x80, 1]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (number, bytes) in rows {
            assert_eq!(read_varint(bytes), Some((number, bytes.len())));
            assert_eq!(read_varlong(bytes), Some((i64::from(number), bytes.len())));
        }
    }

    #[test]
    fn unfinished_and_overlong_numbers_are_none() {
        assert_eq!(read_varint(&[]), None);
        assert_eq!(read_varint(&[0x80, 0x80]), None);
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(read_varlong(&[0xff; 11]), None);
        assert_eq!(
            read_varlong(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            Some((i64::MIN, 10))
        );
    }
}
