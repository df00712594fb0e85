-- Purpose: a lane's shard also says whose turn the lane waits for (its route and tenant), so that a relay finds each route's due
-- lanes without reading another route's, and leaves those of a paused engine alone.
-- Cost: none for the old constraint; Spanner checks the new one against every stored lane in the background. No index is built.
-- Back out: forward only; a later migration corrects this one.

ALTER TABLE Lanes DROP CONSTRAINT LanesShardInRange;

ALTER TABLE Lanes ADD CONSTRAINT LanesShardNotNegative CHECK (Shard >= 0);
