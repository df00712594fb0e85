-- Purpose: the database knows how far back it remembers what has finished, also after retention.processed has changed, so that an
-- import makes no message of an object whose message was handled and deleted since.
-- Cost: none; three columns of a table with one row for each consumer.
-- Back out: forward only; a later migration corrects this one.

ALTER TABLE Relays ADD COLUMN RetentionSeconds INT64;

ALTER TABLE Relays ADD COLUMN ShorterRetentionSeconds INT64;

ALTER TABLE Relays ADD COLUMN ShorterRetentionUntil TIMESTAMP;
