-- What the migrations add up to. Written by "go test ./internal/migrate -run TestSchema -update"; not applied from.

CREATE TABLE Messages (
  InboxId STRING(32) NOT NULL,
  Consumer STRING(128) NOT NULL,
  Scope STRING(1024) NOT NULL,
  DedupeKey STRING(4096) NOT NULL,
  TransportKey STRING(32),
  Subscription STRING(1024),
  MessageId STRING(1024),
  OrderingKey STRING(1024),
  PublishedAt TIMESTAMP,
  ReceivedAt TIMESTAMP NOT NULL OPTIONS (
    allow_commit_timestamp = true
  ),
  MessageType STRING(256),
  MessageVersion STRING(256),
  Route STRING(128),
  TenantId STRING(256),
  AggregateType STRING(256),
  CorrelationId STRING(256),
  CausationId STRING(256),
  TraceParent STRING(64),
  LaneId STRING(32) NOT NULL,
  CorrelationKey STRING(1024),
  Sequence INT64 NOT NULL,
  OrderedAt TIMESTAMP NOT NULL,
  Status STRING(16) NOT NULL,
  Reason STRING(64),
  Blocks BOOL NOT NULL DEFAULT (false),
  Late BOOL NOT NULL DEFAULT (false),
  HandedOver BOOL NOT NULL DEFAULT (false),
  Attempts INT64 NOT NULL DEFAULT (0),
  TechnicalFailures INT64 NOT NULL DEFAULT (0),
  OutageFailures INT64 NOT NULL DEFAULT (0),
  LostWorkers INT64 NOT NULL DEFAULT (0),
  OutcomeUnknown BOOL NOT NULL DEFAULT (false),
  PatienceUsed INT64 NOT NULL DEFAULT (0),
  LastNotWaitingAt TIMESTAMP,
  NextAttemptAt TIMESTAMP,
  ProcessingStartedAt TIMESTAMP,
  ProcessedAt TIMESTAMP,
  FirstFailedAt TIMESTAMP,
  LastFailedAt TIMESTAMP,
  LastErrorCode STRING(128),
  LastErrorMessage STRING(2048),
  EngineReference STRING(1024),
  Attributes JSON,
  ContentSha256 STRING(64) NOT NULL,
  PayloadSha256 STRING(64) NOT NULL,
  PayloadBytes INT64 NOT NULL,
  PayloadLocation STRING(2048),
  ReplayOf STRING(32),
  ConflictsWith STRING(32),
  PurgeAfter TIMESTAMP,
  PurgeAt TIMESTAMP AS (IF (Status IN ('PROCESSED', 'DISCARDED'), PurgeAfter, NULL)) STORED,
  Queue INT64 NOT NULL AS (IF (Status IN ('RECEIVED', 'PROCESSING', 'RETRYING') OR (Status = 'PARKED' AND Blocks), 0, 1)) STORED,
  OpenShard INT64 AS (IF (Status IN ('RECEIVED', 'PROCESSING', 'RETRYING'), ABS(MOD(FARM_FINGERPRINT(InboxId), 16)), NULL)) STORED,
  ParkedReason STRING(64) AS (IF (Status = 'PARKED', COALESCE(Reason, ''), NULL)) STORED,
  ClaimUri STRING(2048),
  ClaimGeneration INT64,
  ClaimSha256 STRING(64),
  SourceAttempts INT64,
  PatienceFor STRING(16),
  CONSTRAINT MessagesStatusKnown CHECK(Status IN ('RECEIVED', 'PROCESSING', 'RETRYING', 'PROCESSED', 'PARKED', 'DISCARDED')),
  CONSTRAINT MessagesCountsNotNegative CHECK(Attempts >= 0 AND TechnicalFailures >= 0 AND OutageFailures >= 0 AND LostWorkers >= 0 AND PatienceUsed >= 0),
) PRIMARY KEY(InboxId), ROW DELETION POLICY (OLDER_THAN(PurgeAt, INTERVAL 0 DAY));

CREATE INDEX MessagesByClaim ON Messages(ClaimUri, InboxId) STORING (ClaimGeneration, Consumer) WHERE ClaimUri IS NOT NULL;

CREATE INDEX MessagesByLane ON Messages(LaneId, Queue, Sequence, OrderedAt, ReceivedAt, InboxId) STORING (Status, Route, NextAttemptAt);

CREATE UNIQUE INDEX MessagesByTransport ON Messages(TransportKey) WHERE TransportKey IS NOT NULL;

CREATE INDEX MessagesOpen ON Messages(Consumer, OpenShard, ReceivedAt, InboxId) STORING (Status, LaneId, NextAttemptAt, MessageType, Route) WHERE OpenShard IS NOT NULL;

CREATE INDEX MessagesParked ON Messages(Consumer, ParkedReason, ReceivedAt, InboxId) STORING (MessageType, Route) WHERE ParkedReason IS NOT NULL;

CREATE TABLE Payloads (
  InboxId STRING(32) NOT NULL,
  Body BYTES(MAX) NOT NULL,
  ContentType STRING(256),
  PurgeAt TIMESTAMP,
) PRIMARY KEY(InboxId),
  INTERLEAVE IN PARENT Messages ON DELETE CASCADE, ROW DELETION POLICY (OLDER_THAN(PurgeAt, INTERVAL 0 DAY));

CREATE TABLE Deliveries (
  InboxId STRING(32) NOT NULL,
  DeliveryId STRING(36) NOT NULL,
  ReceivedAt TIMESTAMP NOT NULL OPTIONS (
    allow_commit_timestamp = true
  ),
  MessageId STRING(1024),
  DeliveryAttempt INT64,
  Subscription STRING(1024),
  Revision STRING(256),
) PRIMARY KEY(InboxId, DeliveryId),
  INTERLEAVE IN PARENT Messages ON DELETE CASCADE;

CREATE TABLE Attempts (
  InboxId STRING(32) NOT NULL,
  AttemptId STRING(36) NOT NULL,
  Number INT64 NOT NULL,
  StartedAt TIMESTAMP,
  EndedAt TIMESTAMP,
  Verdict STRING(32) NOT NULL,
  Late BOOL NOT NULL DEFAULT (false),
  ErrorCode STRING(128),
  ErrorMessage STRING(2048),
  Engine STRING(128),
  Owner STRING(64),
  Revision STRING(256),
) PRIMARY KEY(InboxId, AttemptId),
  INTERLEAVE IN PARENT Messages ON DELETE CASCADE;

CREATE TABLE Lanes (
  LaneId STRING(32) NOT NULL,
  Consumer STRING(128) NOT NULL,
  CorrelationKey STRING(1024),
  Shard INT64 NOT NULL,
  WokenAt TIMESTAMP OPTIONS (
    allow_commit_timestamp = true
  ),
  DueAt TIMESTAMP,
  LeaseOwner STRING(64),
  LeaseToken INT64 NOT NULL DEFAULT (0),
  LeaseUntil TIMESTAMP,
  HeldBy STRING(256),
  HeldReason STRING(1024),
  WhyNotDue STRING(64),
  LastSequence INT64,
  LastOrderedAt TIMESTAMP,
  LastReceivedAt TIMESTAMP,
  LastInboxId STRING(32),
  PurgeAt TIMESTAMP,
  Stopped STRING(8) AS (IF (HeldBy IS NOT NULL, 'HELD', IF (WhyNotDue = 'BLOCKED', 'BLOCKED', NULL))) STORED,
  CONSTRAINT LanesShardNotNegative CHECK(Shard >= 0),
) PRIMARY KEY(LaneId), ROW DELETION POLICY (OLDER_THAN(PurgeAt, INTERVAL 0 DAY));

CREATE INDEX LanesDue ON Lanes(Consumer, Shard, DueAt) STORING (LeaseUntil) WHERE DueAt IS NOT NULL;

CREATE INDEX LanesStopped ON Lanes(Consumer, Stopped, LaneId) WHERE Stopped IS NOT NULL;

CREATE INDEX LanesWoken ON Lanes(Consumer, Shard, WokenAt) STORING (LeaseUntil) WHERE WokenAt IS NOT NULL;

CREATE TABLE Engines (
  Consumer STRING(128) NOT NULL,
  Engine STRING(128) NOT NULL,
  PausedAt TIMESTAMP,
  PausedBy STRING(256),
  PausedReason STRING(1024),
  Failures INT64 NOT NULL DEFAULT (0),
  LastFailedInboxId STRING(32),
  OpenReason STRING(32),
  OpenUntil TIMESTAMP,
  Openings INT64 NOT NULL DEFAULT (0),
  ProbeOwner STRING(64),
  ProbeUntil TIMESTAMP,
  LastAnsweredAt TIMESTAMP,
  LastAnsweredInboxId STRING(32),
  LastErrorMessage STRING(2048),
) PRIMARY KEY(Consumer, Engine);

CREATE TABLE Relays (
  Consumer STRING(128) NOT NULL,
  SweepShard INT64,
  SweepReceivedAt TIMESTAMP,
  SweepInboxId STRING(32),
  ReporterOwner STRING(64),
  ReporterUntil TIMESTAMP,
  RetentionSeconds INT64,
  ShorterRetentionSeconds INT64,
  ShorterRetentionUntil TIMESTAMP,
) PRIMARY KEY(Consumer);

CREATE TABLE Audit (
  AuditId STRING(36) NOT NULL,
  OccurredAt TIMESTAMP NOT NULL OPTIONS (
    allow_commit_timestamp = true
  ),
  Consumer STRING(128),
  Actor STRING(256) NOT NULL,
  Action STRING(64) NOT NULL,
  Reason STRING(2048),
  InboxId STRING(32),
  LaneId STRING(32),
  Before JSON,
  After JSON,
) PRIMARY KEY(AuditId);

CREATE INDEX AuditByMessage ON Audit(InboxId, OccurredAt) WHERE InboxId IS NOT NULL;
