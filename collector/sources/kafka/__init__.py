"""Kafka, the only part of the collector that imports kafka-python (3.0.12 and later of 3.x).

source         KafkaSource: topics as a member of a consumer group, positions from the store
connecting     the consumer: settings, bootstrap that does not leak, what the rebalance listener notes
damage         where in the log the bytes are that cannot be read
topics         create_topics: what `tocsin kafka init` does
dead_letters   KafkaDeadLetters: rejected values to a topic
"""
