-- The database role of operators who may work on messages and not read payloads. Terraform changes no schema, and no
-- migration makes it: whether people are told apart is a deployment's choice. Once for a database, by an account that may
-- change its schema:
--
--   gcloud spanner databases ddl update DATABASE --instance INSTANCE --ddl-file terraform/operator-roles.sql
--
-- With `inboxctl --database-role inbox_ledger` it covers list, show and reopen: every table is read, a message's state and
-- its lane are written, and what is done is written down. Attribute values are part of the ledger: Messages has them. The
-- body of a payload is covered by no grant here; what its row says beside it is needed to keep it longer. reroute and
-- show --payload read bodies, and are for the others.

CREATE ROLE inbox_ledger;

GRANT SELECT ON TABLE Messages, Deliveries, Attempts, Lanes, Engines, Relays, Audit TO ROLE inbox_ledger;

GRANT SELECT(InboxId, ContentType, PurgeAt), UPDATE(InboxId, PurgeAt) ON TABLE Payloads TO ROLE inbox_ledger;

GRANT UPDATE ON TABLE Messages TO ROLE inbox_ledger;

GRANT INSERT, UPDATE ON TABLE Lanes TO ROLE inbox_ledger;

GRANT INSERT ON TABLE Audit TO ROLE inbox_ledger;
