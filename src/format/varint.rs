//! Zig-zag variable-length integers of magic 2 records (format page, "varint").

/// The 32-bit varint at the start of `data`, and what follows it. `None` where the bytes end first
/// or go on beyond five.
#[inline]
pub fn read_varint(data: &[u8]) -> Option<(i32, &[u8])> {
    let (raw, rest) = read_raw(data)?;
    Some((zig_zag_32(raw), rest))
}

/// The same for a number that counts something: `None` in the pair is -1, which stands for NULL.
/// Other negative numbers count nothing, and give `None`.
#[inline]
pub fn read_count(data: &[u8]) -> Option<(Option<usize>, &[u8])> {
    let (raw, rest) = read_raw(data)?;
    if raw & 1 == 0 {
        return Some((Some(usize::try_from(raw >> 1).ok()?), rest));
    }
    (raw == 1).then_some((None, rest))
}

#[inline]
fn read_raw(data: &[u8]) -> Option<(u32, &[u8])> {
    match data {
        [a, rest @ ..] if *a < 0x80 => Some((u32::from(*a), rest)),
        [a, b, rest @ ..] if *b < 0x80 => Some((u32::from(a & 0x7f) | u32::from(*b) << 7, rest)),
        _ => read_long_raw(data),
    }
}

/// The 64-bit varint at the start of `data`, and what follows it. `None` where the bytes end first
/// or go on beyond ten.
#[inline]
pub fn read_varlong(data: &[u8]) -> Option<(i64, &[u8])> {
    match data {
        [a, rest @ ..] if *a < 0x80 => Some((zig_zag_64(u64::from(*a)), rest)),
        [a, b, rest @ ..] if *b < 0x80 => {
            Some((zig_zag_64(u64::from(a & 0x7f) | u64::from(*b) << 7), rest))
        }
        _ => read_groups(data, 10).map(|(raw, rest)| (zig_zag_64(raw), rest)),
    }
}

/// Apart from the short ones, so that those stay fast.
#[inline(never)]
fn read_long_raw(data: &[u8]) -> Option<(u32, &[u8])> {
    let (raw, rest) = read_groups(data, 5)?;
    // Kafka drops what a fifth byte holds beyond 32 bits.
    Some((u32::try_from(raw & u64::from(u32::MAX)).ok()?, rest))
}

#[inline(never)]
fn read_groups(data: &[u8], longest: usize) -> Option<(u64, &[u8])> {
    let mut raw = 0u64;
    for (place, &byte) in data.iter().take(longest).enumerate() {
        raw |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some((raw, &data[place + 1..]));
        }
    }
    None
}

/// Appends `number` as a 32-bit varint.
#[inline]
pub fn write_varint(out: &mut Vec<u8>, number: i32) {
    write_groups(out, u64::from(zig_zagged_32(number)));
}

/// Appends `number` as a 64-bit varint.
#[inline]
pub fn write_varlong(out: &mut Vec<u8>, number: i64) {
    write_groups(out, zig_zagged_64(number));
}

/// Bytes of `number` as a 32-bit varint: 1 to 5.
#[inline]
pub const fn varint_bytes(number: i32) -> usize {
    groups_count(zig_zagged_32(number) as u64)
}

/// Bytes of `number` as a 64-bit varint: 1 to 10.
#[inline]
pub const fn varlong_bytes(number: i64) -> usize {
    groups_count(zig_zagged_64(number))
}

#[inline]
fn write_groups(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push(low_byte(raw) | 0x80);
        raw >>= 7;
    }
    out.push(low_byte(raw));
}

#[inline]
const fn low_byte(raw: u64) -> u8 {
    raw.to_be_bytes()[7]
}

#[inline]
const fn groups_count(raw: u64) -> usize {
    let bits = u64::BITS - (raw | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[inline]
const fn zig_zagged_32(number: i32) -> u32 {
    ((number << 1) ^ (number >> 31)).cast_unsigned()
}

#[inline]
const fn zig_zagged_64(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
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
    use proptest::prelude::*;

    fn varint(number: i32) -> Vec<u8> {
        let mut out = Vec::new();
        write_varint(&mut out, number);
        assert_eq!(out.len(), varint_bytes(number), "{number}");
        out
    }

    fn varlong(number: i64) -> Vec<u8> {
        let mut out = Vec::new();
        write_varlong(&mut out, number);
        assert_eq!(out.len(), varlong_bytes(number), "{number}");
        out
    }

    /// kafka-behaviours row 1 (`ByteUtilsTest.testVarintSerde`).
    #[test]
    fn the_table_of_kafkas_test_is_written_and_reads_back() {
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
            let data = [bytes, &[7, 0x80]].concat();
            assert_eq!(read_varint(&data), Some((number, &[7, 0x80][..])));
            assert_eq!(read_varlong(&data), Some((i64::from(number), &[7, 0x80][..])));
            assert_eq!(varint(number), bytes);
            assert_eq!(varlong(i64::from(number)), bytes);
        }
    }

    #[test]
    fn counts_are_not_negative_and_minus_one_is_null() {
        let rest = &[9][..];
        assert_eq!(read_count(&[0, 9]), Some((Some(0), rest)));
        assert_eq!(read_count(&[1, 9]), Some((None, rest)));
        assert_eq!(read_count(&[0xfe, 0x7f, 9]), Some((Some(8191), rest)));
        let most = Some(i32::MAX as usize);
        assert_eq!(read_count(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 9]), Some((most, rest)));
        for negative in [&[3, 9][..], &[0xff, 1], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[]] {
            assert_eq!(read_count(negative), None);
        }
    }

    #[test]
    fn every_length_of_a_number_reads_back_at_both_of_its_ends() {
        for bits in 0..63 {
            for number in [(1_i64 << bits) - 1, 1 << bits, -(1 << bits), !(1 << bits)] {
                assert_eq!(read_varlong(&varlong(number)), Some((number, &[][..])));
            }
        }
        assert_eq!((varlong_bytes(i64::MAX), varlong_bytes(i64::MIN)), (10, 10));
    }

    #[test]
    fn unfinished_and_overlong_numbers_are_none() {
        assert_eq!(read_varint(&[]), None);
        assert_eq!(read_varint(&[0x80, 0x80]), None);
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(read_varlong(&[0xff; 11]), None);
        assert_eq!(
            read_varlong(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            Some((i64::MIN, &[][..]))
        );
    }

    proptest! {
        #[test]
        fn numbers_read_back(int: i32, long: i64, behind: Vec<u8>) {
            let bytes = [varint(int), behind.clone()].concat();
            prop_assert_eq!(read_varint(&bytes), Some((int, behind.as_slice())));
            let bytes = [varlong(long), behind.clone()].concat();
            prop_assert_eq!(read_varlong(&bytes), Some((long, behind.as_slice())));
        }
    }
}
