//! The schema files, by the topic whose records they describe. They are Kafka's own, of release
//! 4.4.0, and are read when a decoder is asked for.

use crate::inspect::dump::schema::Schema;

/// The texts of the named files in one folder of `../schemas`.
macro_rules! schema_files {
    ($folder:literal: $($name:ident)+) => {
        &[$(include_str!(concat!("../schemas/", $folder, "/", stringify!($name), ".json"))),+]
    };
}

/// Records of `__consumer_offsets`: keys and values.
pub const GROUP: &[&str] = schema_files! {
    "group":
    ConsumerGroupCurrentMemberAssignmentKey
    ConsumerGroupCurrentMemberAssignmentValue
    ConsumerGroupMemberMetadataKey
    ConsumerGroupMemberMetadataValue
    ConsumerGroupMetadataKey
    ConsumerGroupMetadataValue
    ConsumerGroupPartitionMetadataKey
    ConsumerGroupPartitionMetadataValue
    ConsumerGroupRegularExpressionKey
    ConsumerGroupRegularExpressionValue
    ConsumerGroupTargetAssignmentMemberKey
    ConsumerGroupTargetAssignmentMemberValue
    ConsumerGroupTargetAssignmentMetadataKey
    ConsumerGroupTargetAssignmentMetadataValue
    GroupMetadataKey
    GroupMetadataValue
    LegacyOffsetCommitKey
    LegacyOffsetCommitValue
    OffsetCommitKey
    OffsetCommitValue
    ShareGroupCurrentMemberAssignmentKey
    ShareGroupCurrentMemberAssignmentValue
    ShareGroupMemberMetadataKey
    ShareGroupMemberMetadataValue
    ShareGroupMetadataKey
    ShareGroupMetadataValue
    ShareGroupStatePartitionMetadataKey
    ShareGroupStatePartitionMetadataValue
    ShareGroupTargetAssignmentMemberKey
    ShareGroupTargetAssignmentMemberValue
    ShareGroupTargetAssignmentMetadataKey
    ShareGroupTargetAssignmentMetadataValue
    StreamsGroupCurrentMemberAssignmentKey
    StreamsGroupCurrentMemberAssignmentValue
    StreamsGroupMemberMetadataKey
    StreamsGroupMemberMetadataValue
    StreamsGroupMetadataKey
    StreamsGroupMetadataValue
    StreamsGroupTargetAssignmentMemberKey
    StreamsGroupTargetAssignmentMemberValue
    StreamsGroupTargetAssignmentMetadataKey
    StreamsGroupTargetAssignmentMetadataValue
    StreamsGroupTopologyKey
    StreamsGroupTopologyValue
};

/// Records of `__transaction_state`: keys and values.
pub const TRANSACTION: &[&str] = schema_files! {
    "transaction":
    TransactionLogKey
    TransactionLogValue
};

/// Records of `__share_group_state`: keys and values.
pub const SHARE: &[&str] = schema_files! {
    "share":
    ShareSnapshotKey
    ShareSnapshotValue
    ShareUpdateKey
    ShareUpdateValue
};

/// Records of `__cluster_metadata`.
pub const METADATA: &[&str] = schema_files! {
    "metadata":
    AbortTransactionRecord
    AccessControlEntryRecord
    BeginTransactionRecord
    BrokerRegistrationChangeRecord
    ClearElrRecord
    ClientQuotaRecord
    ConfigRecord
    DelegationTokenRecord
    EndTransactionRecord
    FeatureLevelRecord
    FenceBrokerRecord
    NoOpRecord
    PartitionChangeRecord
    PartitionRecord
    ProducerIdsRecord
    RegisterBrokerRecord
    RegisterControllerRecord
    RemoveAccessControlEntryRecord
    RemoveDelegationTokenRecord
    RemoveTopicRecord
    RemoveUserScramCredentialRecord
    TopicRecord
    UnfenceBrokerRecord
    UnregisterBrokerRecord
    UnregisterControllerRecord
    UserScramCredentialRecord
    ZkMigrationRecord
};

/// Values of control records of `__cluster_metadata`, by their type: from 2 to 6.
pub const CONTROL: &[&str] = schema_files! {
    "control":
    LeaderChangeMessage
    SnapshotHeaderRecord
    SnapshotFooterRecord
    KRaftVersionRecord
    VotersRecord
};

/// What a member of a group of consumers says of itself, and what it is told.
pub const CONSUMER: &[&str] = schema_files! {
    "consumer":
    ConsumerProtocolSubscription
    ConsumerProtocolAssignment
};

/// The schemas in these files.
pub fn parse_all(texts: &[&str]) -> Vec<Schema> {
    let parse = |text: &&str| Schema::parse(text).expect("a test reads all of these files");
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_schemas() {
        for (texts, count) in [(GROUP, 44), (TRANSACTION, 2), (SHARE, 4), (METADATA, 27)] {
            let schemas = parse_all(texts);
            let mut numbers: Vec<_> = schemas.iter().map(|s| (s.api_key, s.is_key)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!((schemas.len(), numbers.len()), (count, count));
        }
        assert_eq!((parse_all(CONTROL).len(), parse_all(CONSUMER).len()), (5, 2));
    }
}
