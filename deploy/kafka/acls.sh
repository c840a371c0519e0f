#!/usr/bin/env bash
# Who may do what on Tocsin's topics, for a cluster with an authorizer. Idempotent: an ACL that exists is left alone.
#
#     deploy/kafka/acls.sh --bootstrap-server broker:9093 --command-config admin.properties
#
# TOCSIN_COLLECTOR and TOCSIN_TRAINER are the principals (default User:tocsin, User:trainer); KAFKA_ACLS is the program, kafka-acls.sh
# of the Kafka distribution unless it says otherwise. Topics are made by an administrator (`tocsin kafka init`, or
# docs/operate/kafka.md): neither of the two may create any.
set -euo pipefail

acls="${KAFKA_ACLS:-kafka-acls.sh}"
collector="${TOCSIN_COLLECTOR:-User:tocsin}"
trainer="${TOCSIN_TRAINER:-User:trainer}"

allow() { "$acls" "${cluster[@]}" --add --force "$@"; }
cluster=("$@")

# The collector reads records as a member of its group, and writes what it has to say.
allow --allow-principal "$collector" --operation Read --operation Describe --topic tocsin.records
allow --allow-principal "$collector" --operation Read --operation Describe --group tocsin
allow --allow-principal "$collector" --operation Write --operation Describe --topic tocsin.dead-letters
allow --allow-principal "$collector" --operation Write --operation Describe --topic tocsin.control
allow --allow-principal "$collector" --operation Write --operation Describe --topic tocsin.alerts

# Training jobs write records and look for stop requests. They read nobody's records, and no group is needed for the control topic.
allow --allow-principal "$trainer" --operation Write --operation Describe --topic tocsin.records
allow --allow-principal "$trainer" --operation Read --operation Describe --topic tocsin.control
