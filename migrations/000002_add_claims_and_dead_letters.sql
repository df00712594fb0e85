-- Purpose: what a sender's claim check refers to, and what a dead letter says of its source.
-- Cost: nullable columns at once. For the index Spanner reads all of Messages in the background, though it holds no stored row:
-- minutes to hours where there are many.
-- Back out: forward only; a later migration corrects this one.

ALTER TABLE Messages ADD COLUMN ClaimUri STRING(2048);

ALTER TABLE Messages ADD COLUMN ClaimGeneration INT64;

ALTER TABLE Messages ADD COLUMN ClaimSha256 STRING(64);

-- Not null exactly for a message that came through the dead-letter topic.
ALTER TABLE Messages ADD COLUMN SourceAttempts INT64;

-- Which messages announce an object.
CREATE INDEX MessagesByClaim ON Messages (ClaimUri, InboxId) STORING (ClaimGeneration, Consumer) WHERE ClaimUri IS NOT NULL;
