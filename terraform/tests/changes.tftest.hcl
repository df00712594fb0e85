# What an apply touches when nothing, one subscription, or the source and configuration change. The plans are read by
# TestAPlanTouchesWhatHasChangedAndNothingElse in checks_test.go, from `terraform test -json -verbose`.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id     = "demo"
  region         = "europe-west1"
  source_archive = "tests/testdata/source.zip"
  config         = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}]}"
  subscriptions  = { orders = {}, invoices = {} }
}

run "applied" {
  command = apply
}

run "nothing_changes" {
  command = plan
}

run "one_subscription_goes" {
  command = plan

  variables {
    subscriptions = { orders = {} }
  }
}

run "one_subscription_comes" {
  command = plan

  variables {
    subscriptions = { orders = {}, invoices = {}, reports = {} }
  }
}

run "the_configuration_changes" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 11s}}, routes: [{name: r}]}"
  }
}

run "the_source_changes" {
  command = plan

  variables {
    source_archive = "tests/testdata/inbox.yaml"
  }
}
