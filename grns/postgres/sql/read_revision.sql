-- Reads at which revision the schema is.
select v.version_num from grns.schema_version v
